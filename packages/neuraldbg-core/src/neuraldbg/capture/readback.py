# SPDX-License-Identifier: MIT
"""How figures reach the host: read on the spot, or sent on their way and taken in some steps later.

On the CPU a figure is read where it is made. Reading one from an accelerator would make the loop
wait for everything that the device still has to do, so there the figures of a step are copied
aside on the device, sent to pinned memory behind the step's own work, and taken in once an event
says that they have arrived. What depends on them waits in the same line, in order.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import torch

from neuraldbg.capture.ranks import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

QUEUE = 8
"""Steps under way at most; beyond that the oldest is waited for. Heuristic: a device's own launch
queue (about a thousand kernels) holds fewer steps, so the loop never runs that far ahead of it."""


class Parcel(Protocol):
    """Tensors on their way to the host."""

    def is_here(self) -> bool:
        """Whether they have arrived; never waits."""

    def open(self) -> list[torch.Tensor]:
        """Return them on the host; waits where they have not arrived."""


class Carrier(Protocol):
    """Sends tensors of one kind of device to the host in the background."""

    def is_remote(self, tensor: torch.Tensor) -> bool:
        """Whether reading this tensor on the spot would wait for the device."""

    def send(self, tensors: list[torch.Tensor]) -> Parcel:
        """Start the journey of tensors that nobody changes any more."""


class Later:
    """A number that is still on its way: NaN until it is here. Stands where a float will."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = math.nan

    def __float__(self) -> float:
        return self.value


class Readback:
    """The one way by which capture reads tensors.

    Without a carrier every call is carried out at once; with one (`is_late`), in the order of the
    calls, some steps after `ship`.
    """

    def __init__(self) -> None:
        self.carrier: Carrier | None = None
        self._asked: list[torch.Tensor] = []
        self._acts: list[Callable[[list[torch.Tensor]], None]] = []
        self._under_way: deque[tuple[_Load, list[Callable[[list[torch.Tensor]], None]]]] = deque()
        self._is_taking = False

    @property
    def is_late(self) -> bool:
        """Whether figures arrive some steps after they were asked for."""
        return self.carrier is not None

    # -- asking ------------------------------------------------------------------------------

    def then(self, act: Callable[[], None]) -> None:
        """Do something that depends on what was asked for before."""
        if self.carrier is None:
            act()
        else:
            self._acts.append(lambda _: act())

    def read(self, tensor: torch.Tensor, then: Callable[[torch.Tensor], None]) -> None:
        """Hand a tensor to `then`, on the host, with the values that it has now."""
        if self.carrier is None:
            here = tensor.detach()
            then(here if here.device.type == "cpu" else here.cpu())
        else:
            shape, place = tensor.shape, self._ask([tensor.detach()])
            self._acts.append(lambda host: then(host[place].view(shape)))

    def read_all(
        self, tensors: Sequence[torch.Tensor], then: Callable[[list[torch.Tensor]], None]
    ) -> None:
        """Hand small tensors to `then`, flat and on the host; on the CPU as they are, uncopied."""
        if self.carrier is None:
            if any(t.device.type != "cpu" for t in tensors):
                sizes = [t.numel() for t in tensors]
                tensors = _parts(torch.cat([t.reshape(-1).float() for t in tensors]).cpu(), sizes)
            then(list(tensors))
        elif tensors:
            sizes, place = [t.numel() for t in tensors], self._ask(tensors)
            self._acts.append(lambda host: then(_parts(host[place], sizes)))

    def number(self, value: Any, over: Any = 1.0) -> Any:
        """Return a number, or one-element tensor, divided by `over` (by 1 where that is 0).

        As a float, or as `Later`.
        """
        if self.carrier is None or not (
            isinstance(value, torch.Tensor) and self.carrier.is_remote(value)
        ):
            number = value.item() if isinstance(value, torch.Tensor) else value
            return float(number) / (float(over) or 1.0)
        later = Later()

        def arrive(host: torch.Tensor) -> None:
            later.value = host.item() / (float(over) or 1.0)

        self.read(part_of(value), arrive)
        return later

    def numbers(self, values: Sequence[Any]) -> list[Any]:
        """Return many numbers, with one copy for all that are on the device."""
        if self.carrier is None:
            return [float(value) for value in values]
        is_remote = self.carrier.is_remote
        remote = {
            i: v for i, v in enumerate(values) if isinstance(v, torch.Tensor) and is_remote(v)
        }
        figures: list[Any] = [Later() if i in remote else float(v) for i, v in enumerate(values)]
        awaited = [one for one in figures if isinstance(one, Later)]

        def arrive(host: list[torch.Tensor]) -> None:
            for one, value in zip(awaited, host, strict=True):
                one.value = value.item()

        self.read_all([v.detach() for v in remote.values()], arrive)
        return figures

    def _ask(self, tensors: Sequence[torch.Tensor]) -> int:
        """Copy the values aside; return the place of the joined copy among those of the parcel."""
        wide = torch.float64 if tensors[0].dtype is torch.float64 else torch.float32
        device = tensors[0].device
        flat = [t.reshape(-1).to(device, wide, non_blocking=True) for t in tensors]
        self._asked.append(torch.cat(flat) if len(flat) > 1 else flat[0].clone())
        return len(self._asked) - 1

    # -- sending and taking in -----------------------------------------------------------------

    def ship(self) -> None:
        """A step is over: send what was asked for on its way, and take in what has arrived."""
        if self.carrier is None:
            return
        if self._acts:
            load = _Load(self.carrier, self._asked)
            self._under_way.append((load, self._acts))
            self._asked, self._acts = [], []
        self._take(lambda load: len(self._under_way) > QUEUE or load.is_here())

    def drain(self) -> None:
        """Take in everything that was sent, however long that takes."""
        self._take(lambda _: True)

    def _take(self, is_due: Callable[[_Load], bool]) -> None:
        if self._is_taking:  # a plugin asks while it is told
            return
        self._is_taking = True
        try:
            while self._under_way and is_due(self._under_way[0][0]):
                load, acts = self._under_way.popleft()
                host = load.open()
                for act in acts:
                    act(host)
        finally:
            self._is_taking = False


class _Load:
    """The tensors of one step, joined by device and kind: one transfer for each of these."""

    def __init__(self, carrier: Carrier, tensors: list[torch.Tensor]) -> None:
        groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for place, tensor in enumerate(tensors):
            groups.setdefault((tensor.device, tensor.dtype), []).append(place)
        self._groups = [[(i, tensors[i].numel()) for i in group] for group in groups.values()]
        self._count = len(tensors)
        joined = [[tensors[i] for i in group] for group in groups.values()]
        self._parcel = carrier.send([torch.cat(g) if len(g) > 1 else g[0] for g in joined])
        self.is_here = self._parcel.is_here

    def open(self) -> list[torch.Tensor]:
        """Return the tensors on the host, in the order in which they were asked for."""
        found: dict[int, torch.Tensor] = {}
        for group, host in zip(self._groups, self._parcel.open(), strict=True):
            parts = _parts(host, [size for _, size in group])
            found.update(zip([i for i, _ in group], parts, strict=True))
        return [found[i] for i in range(self._count)]


def _parts(joined: torch.Tensor, sizes: Sequence[int]) -> list[torch.Tensor]:
    return list(torch.split(joined, list(sizes)))


class Accelerator:
    """Carries over pinned memory, with events of the device's own streams."""

    def is_remote(self, tensor: torch.Tensor) -> bool:
        """See `Carrier`."""
        return tensor.device.type != "cpu"

    def send(self, tensors: list[torch.Tensor]) -> Parcel:
        """See `Carrier`."""
        return _Pinned(tensors)


class _Pinned:
    """Copies into pinned memory, each behind the work that its device has been given so far."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        self._host: list[torch.Tensor] = []
        self._events: list[Any] = []
        for tensor in tensors:
            if tensor.device.type != "cpu":
                host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
                host.copy_(tensor, non_blocking=True)
                module: Any = torch.get_device_module(tensor.device)
                event = module.Event()
                event.record(module.current_stream(tensor.device))
                self._events.append(event)
                self._host.append(host)
            else:
                self._host.append(tensor)

    def is_here(self) -> bool:
        return all(event.query() for event in self._events)

    def open(self) -> list[torch.Tensor]:
        for event in self._events:
            event.synchronize()
        return self._host


LATE = frozenset({"cuda", "xpu"})
"""Devices with pinned memory and events. On any other (mps) figures are read on the spot."""


def carrier_for(device: torch.device) -> Carrier | None:
    """Return what carries figures from a device, None where they are read on the spot."""
    return Accelerator() if device.type in LATE else None
