"""`farm-agent`: enrol this host in a lab, serve the lab with its devices, or list them."""

from collections.abc import Callable, Iterator
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from agent.attached.hosts import attached_devices
from agent.config import LOG_PREFIX, STATE_VARIABLE, state_folder
from agent.devices import CheckedDevice, ProbeError, check, probe, with_attached
from agent.machine.host_tuning import TuningError, Wanted, apply, in_force, restore
from agent.wire.logs import LogFormat, log_to_stderr
from agent.wire.messages import PROTOCOL_VERSION
from agent.wire.private_folder import keep_new_files_private

SECTIONS: Final = {
    "Serve": ("enrol", "start", "service"),
    "Look": ("probe", "check", "version"),
    "Maintain": ("tuning",),
}
"""The verbs by what they are for, as `farm --help` has its own."""

_START: Final = "Start here: farm-agent enrol --server URL, then farm-agent start"


class _FrontPage(TyperGroup):
    """The verbs under headings, in the order of `SECTIONS`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # the signature of click
        """Write one block for each section."""
        formatter.write_paragraph()
        formatter.write_text(_START)
        widest = max(len(name) for names in SECTIONS.values() for name in names)
        for title, names in SECTIONS.items():
            commands = [(name, self.commands[name]) for name in names]
            with formatter.section(title):
                formatter.write_dl(
                    [
                        (name.ljust(widest), command.get_short_help_str(formatter.width - widest - 4))
                        for name, command in commands
                    ]
                )


def _group(text: str, cls: type[TyperGroup] = TyperGroup, *, add_completion: bool = False) -> typer.Typer:
    return typer.Typer(
        cls=cls,
        help=text,
        no_args_is_help=True,
        add_completion=add_completion,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


app = _group("The agent of one lab machine.", _FrontPage, add_completion=True)
tuning = _group("Hold this host's clocks steady, and put them back.")
app.add_typer(tuning, name="tuning")


State = Annotated[Path | None, typer.Option(help=f"State folder (default: ${STATE_VARIABLE}).")]


@app.command("enrol")
def enrol_here(
    server: Annotated[str, typer.Option(envvar="FARM_SERVER", help="URL of the farm's endpoint.")],
    token: Annotated[
        str,
        typer.Option(
            envvar="FARM_ENROL_TOKEN",
            show_envvar=True,
            help="One-time token of `farm lab agents enrol`; others can see it here, not in the variable.",
        ),
    ],
    state: State = None,
) -> None:
    """Make this host an agent of a lab, or give it new secrets (after `farm lab agents rotate`).

    The keys are made here and stay here, in the file credentials.json of the
    state folder, which only this user can read. A running agent switches to
    new ones by itself. Where a private CA signed the server's certificate,
    set SSL_CERT_FILE to that CA.
    Exit code: 0 enrolled, 1 not enrolled.

    Example: FARM_ENROL_TOKEN=... farm-agent enrol --server https://lab:8460
    """
    from agent.enrolment import EnrolmentError, enrol  # noqa: PLC0415  # the other verbs need no HTTP

    _log(LogFormat.TEXT)
    folder = state or state_folder()
    try:
        credentials = enrol(server, token, folder)
    except EnrolmentError as error:
        typer.echo(f"farm-agent: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"enrolled as {credentials.agent_id}; now run: farm-agent start --state {folder}")


@app.command("start")
def start(
    state: State = None,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="Form of the log lines.")
    ] = LogFormat.TEXT,
) -> None:
    """Serve the lab that this host is enrolled in, in the foreground, until SIGTERM.

    A host that is not enrolled yet is enrolled first where FARM_SERVER and
    FARM_ENROL_TOKEN are set. At SIGTERM, running attempts are reported as
    interrupted, and the farm tries them again; results that the farm has not
    confirmed are kept and sent after the next start.
    Exit code: 0 stopped, 1 it cannot start, 3 the farm speaks another protocol.

    Example: farm-agent start --log-format json
    """
    from agent.enrolment import EnrolmentError, enrol_once  # noqa: PLC0415  # as above
    from agent.serve_lab import serve_lab  # noqa: PLC0415  # the other verbs need no link

    _log(log_format)
    folder = state or state_folder()
    try:
        enrol_once(folder)
    except EnrolmentError as error:
        typer.echo(f"farm-agent: {error}", err=True)
        raise typer.Exit(1) from error
    raise typer.Exit(serve_lab(folder))


@app.command("service")
def show_service(state: State = None) -> None:
    """Print the property list by which launchd of macOS runs the agent.

    It has the FARM_ variables of this shell, but not the token of an
    enrolment. Linux runs the agent by a unit of systemd: ansible/ has it.
    Exit code: 0 printed, 1 an agent with these settings would not start.

    Example: FARM_RUNNER_SANDBOX=off farm-agent service
    """
    from agent.launchd import service  # noqa: PLC0415  # the other verbs need it not

    try:
        typer.echo(service((state or state_folder()).absolute()).decode(), nl=False)
    except ValueError as error:
        typer.echo(f"farm-agent: {error}", err=True)
        raise typer.Exit(1) from error


@app.command("probe")
def show_probe() -> None:
    """List this host's devices, and the delegates that it lacks, as JSON.

    Devices that FARM_ATTACHED names are among them; one that does not answer
    is under `missing`, with the reason.

    Example: farm-agent probe
    """
    try:
        report = with_attached(probe(), attached_devices())
    except (ProbeError, ValueError) as error:
        typer.echo(f"farm-agent: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(report.model_dump_json(indent=2))


@app.command("check")
def check_devices(
    again: Annotated[
        bool, typer.Option("--again", help="Check devices that were checked before, too.")
    ] = False,
) -> None:
    """Check every operator of the GPU delegate on this host's OpenCL devices against the CPU path.

    An operator that differs stays on the CPU from the agent's next start on,
    in every result of that device. What was found is kept for as long as
    driver and kernels are the same.
    Exit code: 0 all operators agree, 1 one differs or a device could not be checked.

    Example: farm-agent check --again
    """
    try:
        report = check(again=again)
    except ProbeError as error:
        typer.echo(f"farm-agent: the operators could not be checked: {error}", err=True)
        raise typer.Exit(1) from error
    for device in report.devices:
        for line in _check_lines(device):
            typer.echo(line)
    if not report.devices:
        typer.echo("no OpenCL device to check; `farm-agent probe` says why")
    if any(device.fault or device.wrong for device in report.devices):
        raise typer.Exit(1)


def _check_lines(device: CheckedDevice) -> Iterator[str]:
    named = f"{device.device_id} ({device.name})"
    if device.fault:
        yield f"{named}: could not be checked: {device.fault}"
        return
    known = "" if device.is_new else ", as an earlier check found"
    yield f"{named}: {device.agreed} operators agree with the CPU path, {len(device.wrong)} do not{known}"
    for name, difference in device.wrong.items():
        yield f"  {name}: {difference}"


@tuning.command("apply")
def apply_tuning(
    governor: Annotated[
        str | None, typer.Option(help="Frequency governor of every CPU, e.g. performance.")
    ] = None,
    turbo: Annotated[bool | None, typer.Option(help="Let clocks exceed the nominal one, or not.")] = None,
    gpu_clocks: Annotated[
        str | None, typer.Option(metavar="MIN,MAX", help="Lock the MHz of NVIDIA GPUs, e.g. 1410,1410.")
    ] = None,
    gpu_persistence: Annotated[
        bool | None, typer.Option(help="Keep NVIDIA's driver loaded while nobody uses it.")
    ] = None,
) -> None:
    """Change these settings of the host, as root; what was there is recorded.

    `farm-agent tuning restore` puts everything back; so does a reboot. Results
    say what was in force.
    Exit code: 0 the settings hold, 1 one cannot be made and none was changed.

    Example: farm-agent tuning apply --governor performance --no-turbo
    """
    clocks = None
    if gpu_clocks is not None:
        parts = gpu_clocks.split(",")
        if len(parts) != 2 or not all(part.isdecimal() for part in parts) or int(parts[0]) > int(parts[1]):
            raise typer.BadParameter(f"{gpu_clocks!r}: two numbers of MHz, such as 1410,1410")
        clocks = int(parts[0]), int(parts[1])
    _tell(lambda: apply(Wanted(governor, turbo, clocks, gpu_persistence)), "was")


@tuning.command("restore")
def restore_tuning() -> None:
    """Put back what `farm-agent tuning apply` has changed, as root.

    Exit code: 0 all is as it was, 1 a setting could not be put back.

    Example: farm-agent tuning restore
    """
    _tell(restore, "is again")


@tuning.command("show")
def show_tuning() -> None:
    """Say what is set otherwise than it was found.

    Example: farm-agent tuning show
    """
    typer.echo(in_force() or "nothing was changed by farm-agent")


def _tell(act: Callable[[], dict[str, str]], word: str) -> None:
    try:
        changed = act()
    except (TuningError, OSError) as error:
        typer.echo(f"farm-agent: {error}", err=True)
        raise typer.Exit(1) from error
    for setting, value in changed.items():
        typer.echo(f"{setting} {word} {value}")
    if not changed:
        typer.echo("nothing to change")


@app.command("version")
def show_version() -> None:
    """Print the version of the agent and of its protocol.

    Example: farm-agent version
    """
    typer.echo(f"farm-agent {installed_version('delegate-farm')}, protocol {PROTOCOL_VERSION}")


def _log(form: LogFormat) -> None:
    log_to_stderr(form, prefix=LOG_PREFIX, loggers=("agent",))


def main() -> None:
    """Run `farm-agent`."""
    keep_new_files_private()
    app()
