"""Every public name and the module that has it: type checkers and editors see it, and adt looks it up."""

# ruff: noqa: I001
# fmt: off
from adt import errors as errors
from adt.device.device import Device as Device
from adt.host.download import RegistryFile as RegistryFile, fetch as fetch
from adt.measure.bench import sentence as sentence
from adt.package.classes import rank as rank, read_labels as read_labels
from adt.package.inputs.pictures import PictureOptions as PictureOptions
from adt.rpc.session import remote_model as remote_model
from adt.verbs.apk import apk as apk, install as install
from adt.verbs.bench import bench as bench, bench_ab as bench_ab
from adt.verbs.build import build_abis as build_abis, build_target as build_target, \
    explain_build as explain_build, ndk_env as ndk_env, ndk_list as ndk_list, presets as presets, \
    settings as settings, source as source
from adt.verbs.bundles import bundles as bundles, bundles_remove as bundles_remove
from adt.verbs.compile import compile as compile, compile_kernel as compile_kernel, explain as explain, \
    network as network, networks as networks
from adt.verbs.db import db_export as db_export, db_fetch as db_fetch, db_import as db_import, \
    db_merge as db_merge, db_prune as db_prune, db_publish as db_publish, db_stats as db_stats, \
    db_verify as db_verify
from adt.verbs.deploy import clean as clean, clean_many as clean_many, deploy as deploy, \
    deploy_many as deploy_many
from adt.verbs.device import adb_command as adb_command, chosen_device as chosen_device, devices as devices, \
    emulator_list as emulator_list, emulator_start as emulator_start, emulator_stop as emulator_stop, \
    probe as probe
from adt.verbs.generate import generate as generate
from adt.verbs.inspect import doctor as doctor, elf as elf, inspect as inspect, \
    inspect_diff as inspect_diff, inspect_html as inspect_html
from adt.verbs.offload import compare_offload as compare_offload
from adt.verbs.package import package_merge as package_merge, package_split_params as package_split_params, \
    package_verify as package_verify
from adt.verbs.profile import profile as profile, profile_html as profile_html, \
    profile_trace as profile_trace
from adt.verbs.quantize import quantize as quantize
from adt.verbs.remote import open_remote as open_remote
from adt.verbs.report import report as report, report_export as report_export, report_html as report_html, \
    report_import as report_import
from adt.verbs.rpc import rpc_serve as rpc_serve, rpc_serve_here as rpc_serve_here, \
    rpc_session as rpc_session, rpc_start as rpc_start, rpc_status as rpc_status, rpc_stop as rpc_stop, \
    tracker_start as tracker_start, tracker_status as tracker_status, tracker_stop as tracker_stop
from adt.verbs.run import run as run
from adt.verbs.tune import tune as tune
from adt.verbs.up import up as up
from adt.verbs.verify import verify as verify, verify_layers as verify_layers
__version__: str
