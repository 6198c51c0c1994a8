"""The guards of tests/conftest.py catch what they are there for."""

from __future__ import annotations

from pathlib import Path

import pytest

GUARDS = Path(__file__).parents[1] / "conftest.py"

LEAKS = {
    "variable NEURALDBG_LEFT": "import os; os.environ['NEURALDBG_LEFT'] = '1'",
    "variable PATH": "import os; del os.environ['PATH']",
    "hook in torch.nn.modules.module._global_forward_hooks": (
        "from torch.nn.modules import module; module.register_module_forward_hook(lambda *a: None)"
    ),
    "hook in torch.optim.optimizer._global_optimizer_post_hooks": (
        "from torch.optim import optimizer; "
        "optimizer.register_optimizer_step_post_hook(lambda *a: None)"
    ),
    "patched name torch.autograd.backward": (
        "import torch; torch.autograd.backward = lambda *a, **k: None"
    ),
    "patched name Tensor.backward": "import torch; torch.Tensor.backward = lambda *a: None",
    "default dtype": "import torch; torch.set_default_dtype(torch.float64)",
    "grad mode": "import torch; torch.set_grad_enabled(False)",
    "thread left": (
        "import threading, time; "
        "threading.Thread(target=time.sleep, args=(60,), name='left', daemon=True).start()"
    ),
    "file left.txt": "open('left.txt', 'w').close()",
    "open file": "globals()['kept'] = (tmp_path / 'kept.ndbg').open('w')",
}


@pytest.mark.slow
def test_each_leak_is_named_by_the_guards(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(GUARDS.read_text())
    tests = [f"def test_leak_{n}(tmp_path):\n    {code}\n" for n, code in enumerate(LEAKS.values())]
    pytester.makepyfile("\n".join([*tests, "def test_clean(tmp_path, monkeypatch): pass\n"]))

    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:neuraldbg")

    result.assert_outcomes(passed=len(LEAKS) + 1, errors=len(LEAKS))
    said = [line for line in result.outlines if line.startswith("the test left behind: ")]
    for line, leak in zip(said, LEAKS, strict=True):
        assert leak in line


@pytest.mark.slow
def test_what_monkeypatch_changed_is_no_leak(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(GUARDS.read_text())
    pytester.makepyfile(
        """
        import torch

        def test_tidy(tmp_path, monkeypatch):
            monkeypatch.setenv("NEURALDBG_LEFT", "1")
            monkeypatch.setattr(torch.autograd, "backward", None)
            (tmp_path / "asked_for.ndbg").touch()
            with torch.no_grad():
                pass
        """
    )

    result = pytester.runpytest_subprocess("-p", "no:randomly", "-p", "no:neuraldbg")

    result.assert_outcomes(passed=1)
