"""Small trees of /sys as machines of each kind have them, in the formats of the kernel's Documentation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

CPU = "sys/devices/system/cpu"

INTEL_XEON: Mapping[str, str] = {
    # intel_pstate.rst, cpufreq.rst: kHz
    f"{CPU}/cpu0/cpufreq/scaling_driver": "intel_pstate\n",
    f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "1200000\n",
    f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "4000000\n",
    f"{CPU}/cpu0/cpufreq/base_frequency": "2600000\n",
    f"{CPU}/cpu1/cpufreq/scaling_cur_freq": "3100000\n",
    # sysfs-devices-system-cpu
    f"{CPU}/cpu0/thermal_throttle/core_throttle_count": "2\n",
    f"{CPU}/cpu0/thermal_throttle/package_throttle_count": "5\n",
    # hwmon/sysfs-interface.rst, coretemp.rst: thousandths of a degree
    "sys/class/hwmon/hwmon0/name": "nvme\n",
    "sys/class/hwmon/hwmon0/temp1_input": "80000\n",
    "sys/class/hwmon/hwmon1/name": "coretemp\n",
    "sys/class/hwmon/hwmon1/temp1_label": "Package id 0\n",
    "sys/class/hwmon/hwmon1/temp1_input": "61000\n",
    "sys/class/hwmon/hwmon1/temp1_crit": "98000\n",
    # powercap.rst: millionths of a joule
    "sys/class/powercap/intel-rapl:0/name": "package-0\n",
    "sys/class/powercap/intel-rapl:0/energy_uj": "7000000\n",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850\n",
    "sys/class/powercap/intel-rapl:0:0/name": "core\n",
    "sys/class/powercap/intel-rapl:0:0/energy_uj": "1\n",
}

AMD_RYZEN: Mapping[str, str] = {
    f"{CPU}/cpu0/cpufreq/scaling_driver": "acpi-cpufreq\n",
    f"{CPU}/cpu0/cpufreq/scaling_cur_freq": "3600000\n",
    # The boost of one core, by CPPC; the frequencies that can be asked for end below it.
    f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "4950195\n",
    f"{CPU}/cpu0/cpufreq/scaling_available_frequencies": "3600000 2800000 2200000 \n",
    "sys/class/hwmon/hwmon2/name": "k10temp\n",
    "sys/class/hwmon/hwmon2/temp1_label": "Tctl\n",
    "sys/class/hwmon/hwmon2/temp1_input": "45250\n",
}

ADDRESS = "0000:03:00.0"
_PCI = f"sys/bus/pci/devices/{ADDRESS}"

AMD_GPU: Mapping[str, str] = {
    # gpu/amdgpu/thermal.rst: hertz, millionths of a watt, thousandths of a degree
    "sys/bus/pci/drivers/amdgpu/module": "",
    f"{_PCI}/pp_dpm_sclk": "0: 500Mhz\n1: 1250Mhz *\n2: 2100Mhz\n",
    f"{_PCI}/hwmon/hwmon4/name": "amdgpu\n",
    f"{_PCI}/hwmon/hwmon4/freq1_input": "1250000000\n",
    f"{_PCI}/hwmon/hwmon4/freq1_label": "sclk\n",
    f"{_PCI}/hwmon/hwmon4/temp1_input": "52000\n",
    f"{_PCI}/hwmon/hwmon4/temp1_crit": "100000\n",
    f"{_PCI}/hwmon/hwmon4/power1_average": "31000000\n",
}

INTEL_GPU: Mapping[str, str] = {
    # sysfs-driver-intel-i915-hwmon; gt files of i915: MHz, 0 or 1, millionths of a joule
    "sys/bus/pci/drivers/i915/module": "",
    f"{_PCI}/drm/card1/gt/gt0/rps_act_freq_mhz": "1950\n",
    f"{_PCI}/drm/card1/gt/gt0/throttle_reason_thermal": "1\n",
    f"{_PCI}/drm/card1/gt/gt0/throttle_reason_prochot": "0\n",
    f"{_PCI}/drm/card1/gt/gt0/throttle_reason_pl1": "1\n",
    f"{_PCI}/hwmon/hwmon5/name": "i915\n",
    f"{_PCI}/hwmon/hwmon5/energy1_input": "123000000\n",
}

XE_GPU: Mapping[str, str] = {
    "sys/bus/pci/drivers/xe/module": "",
    f"{_PCI}/tile0/gt0/freq0/act_freq": "2400\n",
    f"{_PCI}/tile0/gt0/freq0/throttle/reason_thermal": "0\n",
    f"{_PCI}/tile0/gt0/freq0/throttle/reason_pl1": "1\n",
    f"{_PCI}/hwmon/hwmon5/energy1_input": "9000000\n",
}


def tree(root: Path, files: Mapping[str, str], driver: str = "") -> Path:
    """Write a tree; `driver`: the kernel driver that the GPU at `ADDRESS` is bound to."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if driver:
        bound = root / _PCI / "driver"
        bound.parent.mkdir(parents=True, exist_ok=True)
        bound.symlink_to(root / "sys/bus/pci/drivers" / driver)
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    return root
