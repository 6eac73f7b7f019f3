"""What the tool knows about a device: one YAML file each, in this folder, every value with source and confidence."""

from __future__ import annotations

from tensor_cast.devices.names import device_names, device_profile
from tensor_cast.devices.profile import Absence, Confidence, DeviceProfile, Entry, Figure, Gap, Label

__all__ = [
    "Absence",
    "Confidence",
    "DeviceProfile",
    "Entry",
    "Figure",
    "Gap",
    "Label",
    "device_names",
    "device_profile",
]
