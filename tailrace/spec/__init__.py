"""What the user asks for: YAML into checked, typed models, each error with its place in the file."""

from tailrace.spec.load import load_spec
from tailrace.spec.model import Chain, Device, Fabric, Function, Hop, Spec, Test
from tailrace.spec.position import SpecError
from tailrace.spec.tests import Burst, Latency, Loss, Reorder, Throughput
from tailrace.spec.units import Rate

__all__ = [
    "Burst", "Chain", "Device", "Fabric", "Function", "Hop", "Latency", "Loss", "Rate", "Reorder", "Spec", "SpecError",
    "Test", "Throughput", "load_spec",
]  # fmt: skip
