# SPDX-License-Identifier: MIT
"""The built-in detectors, registered through the same hook as everybody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pluggy import HookimplMarker

if TYPE_CHECKING:
    from neuraldbg.detector import Detector

hookimpl = HookimplMarker("neuraldbg")


@hookimpl
def neuraldbg_detectors() -> list[type[Detector]]:
    """Return the built-in detector classes, in the order in which they see a step."""
    from neuraldbg.detectors.activation_shift import ActivationShift
    from neuraldbg.detectors.collapse import Collapse
    from neuraldbg.detectors.dead_units import DeadUnits
    from neuraldbg.detectors.exploding_gradient import ExplodingGradient
    from neuraldbg.detectors.input_anomaly import InputAnomaly
    from neuraldbg.detectors.loss_curve import LossCurve
    from neuraldbg.detectors.norm_scale import NormScale
    from neuraldbg.detectors.numerical_error import NumericalError
    from neuraldbg.detectors.objective_mismatch import ObjectiveMismatch
    from neuraldbg.detectors.saturation import Saturation
    from neuraldbg.detectors.vanishing_gradient import VanishingGradient
    from neuraldbg.detectors.wiring_fault import WiringFault

    return [
        InputAnomaly,
        NumericalError,
        VanishingGradient,
        ExplodingGradient,
        DeadUnits,
        Saturation,
        NormScale,
        ActivationShift,
        LossCurve,
        WiringFault,
        ObjectiveMismatch,
        Collapse,
    ]
