"""Opens a farm: its folders, its database, and the parts that work on them."""

from __future__ import annotations

from collections.abc import Sequence

from agent.wire.private_folder import ExposedError, private_folder
from orchestrator.config.filesystem import NETWORK_FILESYSTEMS, filesystem_of
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.dispatch.embedded import agent_command
from orchestrator.doctor.check import Check
from orchestrator.doctor.examine import examine
from orchestrator.errors import UnreachableError
from orchestrator.farm.one_machine import OneMachine
from orchestrator.farm.present_devices import PresentDevices
from orchestrator.farm.reading import Reading
from orchestrator.farm.running import Running
from orchestrator.farm.steering import Steering
from orchestrator.farm.submission import Submission


class Farm:
    """One farm home. Several processes may have it open and call everything at once."""

    def __init__(self, home: FarmHome, lab: LabConfig, database: Database, machine: OneMachine) -> None:
        """Use `Farm.open`."""
        self.home = home
        self.lab = lab
        self.database = database
        self.devices = PresentDevices(lab, database, machine)
        self.submission = Submission(database, self.devices)
        self.running = Running(lab, database, machine)
        self.reading = Reading(home, lab, database)
        self.steering = Steering(database)

    @classmethod
    def open(
        cls,
        home: FarmHome,
        *,
        lab: LabConfig | None = None,
        serving: bool = False,
        command: Sequence[str] | None = None,
    ) -> Farm:
        """Create the folders, bring the database up to date, and clean up after a killed scheduler.

        The database of a lab is brought up to date only by the process that is `serving`: other versions may
        be working on it. `lab`: its database and broker; None: one machine. `command` starts another embedded
        agent than this package's own. Raises `UnreachableError`, and `UsageError` where one machine would
        schedule on a lab's database.
        """
        lab = lab or LabConfig()
        _make_folders(home)
        database = Database.connect(lab.database_url or home.database, home.root)
        machine = OneMachine(home, database, command or agent_command(home))
        try:
            migrate(database, upgrade=serving or not lab.is_lab)
            if not lab.is_lab:
                machine.require_no_lab()
                machine.recover()
        except BaseException:
            database.close()
            raise
        return cls(home, lab, database, machine)

    def doctor(self) -> list[Check]:
        """Check every part of the farm; a fault comes with its fix."""
        return examine(self.home, self.database, self.devices.hello, self.lab)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def __enter__(self) -> Farm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _make_folders(home: FarmHome) -> None:
    try:
        for folder in (home.root, home.store, home.agent):
            private_folder(folder)
    except ExposedError as error:
        raise UnreachableError(str(error)) from error
    except OSError as error:
        raise UnreachableError(
            f"the farm's folder {home.root} cannot be used: {error.strerror}; set FARM_HOME to another"
        ) from error
    if (kind := filesystem_of(home.root)) in NETWORK_FILESYSTEMS:
        raise UnreachableError(
            f"{home.root} lies on {kind}, where the database would break; set FARM_HOME to a local folder"
        )
