"""What the user asks for: YAML into checked, typed models, each error with its place in the file."""

from tailrace.spec.load import load_spec
from tailrace.spec.model import Chain, Device, Fabric, Function, Hop, Latency, Spec, Test
from tailrace.spec.position import SpecError
from tailrace.spec.units import Rate

__all__ = ["Chain", "Device", "Fabric", "Function", "Hop", "Latency", "Rate", "Spec", "SpecError", "Test", "load_spec"]
