"""Systems on chip and boards by name: their cores, and what every core of them can do.

``offers`` is what the kernel reports for every core (``Features`` of ``/proc/cpuinfo``)
on devices that were seen. Sources, named in each row:

- *cpuinfo*: dumps of ``/proc/cpuinfo`` from devices, as people sent them to the public
  list https://github.com/hrw/arm-socs-table; the file there, or the number of the entry.
- *Linux*: the device tree below ``arch/arm64/boot/dts`` of the kernel names the cores,
  and Arm's manual of the core says what it has.

Two traps are known. The cores of one chip may differ (Exynos 9810), and a vendor's kernel may keep what the
cores have to itself: none of the Snapdragons up to 8 Gen 3 offers SVE reliably (one phone with an 8 Gen 1
does, another does not), an 8+ Gen 1 lacks bf16. So SVE is never used, whatever the dump says.
"""

from __future__ import annotations

from dataclasses import dataclass

_V8 = "crc32"
_NO_DOT = "atomics crc32 asimdhp"
_NO_RCPC = "atomics crc32 asimdrdm asimdhp asimddp"
_DOT = f"{_NO_RCPC} lrcpc"
_I8MM = f"{_DOT} i8mm"
_BF16 = f"{_I8MM} bf16"
_A710 = "cortex-a710 cortex-a510"


@dataclass(frozen=True)
class Soc:
    """One system on chip."""

    name: str
    cores: tuple[str, ...]
    """LLVM's names of its cores, the fastest first."""
    code: str
    """The core that code is generated for, one whose instructions the others have, too."""
    offers: frozenset[str]
    """Features that the kernel reports for every core, of those that adt makes use of."""
    source: str
    aliases: tuple[str, ...] = ()
    """Part numbers and other names."""


def _soc(name: str, cores: str, offers: str, source: str, *aliases: str, code: str = "") -> Soc:
    names = tuple(cores.split())
    source = source if source.startswith("Linux") else f"cpuinfo: {source}"
    return Soc(name, names, code or names[-1], frozenset(offers.split()), source, aliases)


SOCS = (
    # Qualcomm
    _soc("snapdragon-410", "cortex-a53", _V8, "snapdragon-410", "msm8916", "apq8016"),
    _soc("snapdragon-625", "cortex-a53", _V8, "snapdragon-625", "msm8953"),
    _soc("snapdragon-660", "cortex-a73 cortex-a53", _V8, "xiaomi-redmi-note-7", "sdm660"),
    _soc("snapdragon-662", "cortex-a73 cortex-a53", _V8, "snapdragon-662", "sm6115"),
    _soc("snapdragon-665", "cortex-a73 cortex-a53", _V8, "snapdragon-665", "sm6125"),
    _soc("snapdragon-675", "cortex-a76 cortex-a55", _DOT, "snapdragon-675", "sm6150"),
    _soc("snapdragon-695", "cortex-a78 cortex-a55", _DOT, "snapdragon-695-sm6375", "sm6375"),
    _soc("snapdragon-6gen1", "cortex-a78 cortex-a55", _DOT, "#189", "sm6450"),
    _soc("snapdragon-710", "cortex-a75 cortex-a55", _NO_DOT, "snapdragon-710", "sdm710"),
    _soc("snapdragon-720g", "cortex-a76 cortex-a55", _DOT, "snapdragon-720g", "sm7125"),
    _soc("snapdragon-765", "cortex-a76 cortex-a55", _DOT, "snapdragon-765", "sm7250"),
    _soc("snapdragon-778g", "cortex-a78 cortex-a55", _DOT, "qcs6490", "sm7325", "qcs6490"),
    _soc("snapdragon-808", "cortex-a57 cortex-a53", _V8, "snapdragon-808", "msm8992"),
    _soc("snapdragon-820", "kryo", _V8, "snapdragon-820", "msm8996"),
    _soc("snapdragon-835", "cortex-a73 cortex-a53", _V8, "Linux: qcom/msm8998.dtsi", "msm8998"),
    _soc("snapdragon-845", "cortex-a75 cortex-a55", _NO_DOT, "snapdragon-845", "sdm845"),
    _soc("snapdragon-855", "cortex-a76 cortex-a55", _DOT, "snapdragon-855-plus", "sm8150"),
    _soc("snapdragon-865", "cortex-a77 cortex-a55", _DOT, "snapdragon-865", "sm8250", "qrb5165", "rb5"),
    _soc("snapdragon-870", "cortex-a77 cortex-a55", _DOT, "Linux: qcom/sm8250.dtsi", "sm8250-ac"),
    _soc("snapdragon-888", "cortex-x1 cortex-a78 cortex-a55", _DOT, "oneplus-9pro", "sm8350"),
    _soc("snapdragon-8gen1", f"cortex-x2 {_A710}", _I8MM, "snapdragon-8-gen1, #90", "sm8450"),
    _soc("snapdragon-8plus-gen1", f"cortex-x2 {_A710}", _I8MM, "snapdragon-8+-gen1", "sm8475"),
    _soc("snapdragon-8gen2", f"cortex-x3 cortex-a715 {_A710}", _BF16, "snapdragon-8-gen2", "sm8550"),
    _soc("snapdragon-8gen3", "cortex-x4 cortex-a720 cortex-a520", _BF16, "snapdragon-8-gen3", "sm8650"),
    _soc("snapdragon-8elite", "oryon-1", _BF16, "snapdragon-8-elite", "sm8750"),
    _soc("snapdragon-x-elite", "oryon-1", _BF16, "snapdragon-x-elite", "x1e80100"),
    # MediaTek
    _soc("helio-g85", "cortex-a75 cortex-a55", _DOT, "mediatek-helio-g85", "mt6769"),
    _soc("helio-g90t", "cortex-a76 cortex-a55", _DOT, "mediatek-helio-g90t", "mt6785"),
    _soc("dimensity-1200", "cortex-a78 cortex-a55", _DOT, "oneplus-nord2", "mt6893"),
    _soc("dimensity-7200", "cortex-a715 cortex-a510", _BF16, "mediatek-dimensity-7200-pro"),
    _soc("dimensity-9000", f"cortex-x2 {_A710}", _BF16, "mediatek-dimensity-9000", "mt6983"),
    _soc("dimensity-9300", "cortex-x4 cortex-a720", _BF16, "mediatek-dimensity-9300", "mt6989"),
    _soc("genio-700", "cortex-a78 cortex-a55", _DOT, "mediatek-mt8188jva", "mt8188", "mt8390"),
    _soc("genio-1200", "cortex-a78 cortex-a55", _DOT, "Mediatek-Genio-1200", "mt8195", "mt8395"),
    # Samsung, Google, HiSilicon
    # the kernel reports atomics and half precision for all, the large cores have neither
    _soc("exynos-9810", "exynos-m3 cortex-a55", _V8, "Exynos-9810", code="exynos-m3"),
    _soc("exynos-9820", "exynos-m4 cortex-a75 cortex-a55", _NO_RCPC, "Exynos-9820"),
    _soc("exynos-990", "exynos-m5 cortex-a76 cortex-a55", _NO_RCPC, "exynos-990"),
    _soc("exynos-2200", f"cortex-x2 {_A710}", _BF16, "exynos-2200"),
    _soc("exynos-2400", "cortex-x4 cortex-a720 cortex-a520", _BF16, "exynos-2400"),
    _soc("tensor-g1", "cortex-x1 cortex-a76 cortex-a55", _DOT, "tensor-g1", "gs101"),
    _soc("tensor-g2", "cortex-x1 cortex-a78 cortex-a55", _DOT, "Google-Tensor-G2", "gs201"),
    _soc("tensor-g3", "cortex-x3 cortex-a715 cortex-a510", _I8MM, "google-tensor-g3", "zuma"),
    _soc("kirin-960", "cortex-a73 cortex-a53", _V8, "HiSilicon-Kirin-960", "hi3660"),
    _soc("kirin-970", "cortex-a73 cortex-a53", _V8, "HiSilicon-Kirin-970", "hi3670"),
    _soc("kirin-980", "cortex-a76 cortex-a55", _DOT, "huawei-p30", "hi3680"),
    # boards
    _soc("rpi3", "cortex-a53", _V8, "raspberry-pi3b", "bcm2837", "raspberry-pi-3"),
    _soc("rpi4", "cortex-a72", _V8, "raspberry-pi4", "bcm2711", "raspberry-pi-4"),
    _soc("rpi5", "cortex-a76", _DOT, "raspberry-pi5", "bcm2712", "raspberry-pi-5"),
    _soc("rk3326", "cortex-a35", _V8, "rk3326"),
    _soc("rk3328", "cortex-a53", _V8, "rk3328"),
    _soc("rk3399", "cortex-a72 cortex-a53", _V8, "rk3399", "rk3399pro"),
    _soc("rk3568", "cortex-a55", _DOT, "rk3568", "rk3566"),
    _soc("rk3576", "cortex-a72 cortex-a53", _V8, "rockchip-3576"),
    _soc("rk3588", "cortex-a76 cortex-a55", _DOT, "rk3588", "rk3588s"),
    _soc("a311d", "cortex-a73 cortex-a53", _V8, "amlogic-a311d", "s922x", "odroid-n2"),
    _soc("s905x3", "cortex-a55", _DOT, "amlogic-s905x3"),
    _soc("imx8mq", "cortex-a53", _V8, "purism-librem-5", "imx8m", "imx8mm", "imx8mn", "imx8mp"),
    _soc("jetson-nano", "cortex-a57", _V8, "nvidia-jetson-nano", "tegra-x1"),
    _soc("jetson-xavier", "carmel", "atomics crc32 asimdrdm asimdhp", "tegra-xavier-agx", "tegra194"),
    _soc("jetson-orin", "cortex-a78ae", _DOT, "Linux: nvidia/tegra234.dtsi", "tegra234"),
    _soc("zynqmp", "cortex-a53", _V8, "xilinx-xczu9eg", "ultra96", "zcu102", "kv260"),
)

LLVM_NAMES = {
    "asimddp": "dotprod",
    "asimdhp": "fullfp16",
    "asimdrdm": "rdm",
    "atomics": "lse",
    "bf16": "bf16",
    "crc32": "crc",
    "i8mm": "i8mm",
    "lrcpc": "rcpc",
    "sve": "sve",
}
"""64-bit Arm: what the kernel calls a feature, and what LLVM does."""

_BY_NAME = {name.replace("-", ""): soc for soc in SOCS for name in (soc.name, *soc.aliases)}


def soc_named(text: str) -> Soc | None:
    """Find the system on chip that people call *text*: case, spaces, ``-`` and ``_`` do not matter."""
    plain = "".join(letter for letter in text.lower() if letter not in "-_ ")
    digits = plain.removeprefix("sd")
    if digits[:1].isdigit():  # sd865, 8gen2
        plain = f"snapdragon{digits}"
    return _BY_NAME.get(plain)
