"""Opens a farm: its folders, its database, and the parts that work on them."""

from collections.abc import Callable, Iterable, Sequence
from copy import copy

from orchestrator.config.home import FarmHome, make_folders
from orchestrator.config.lab import LabConfig
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.dispatch.embedded import agent_command
from orchestrator.doctor.check import Check
from orchestrator.doctor.examine import examine
from orchestrator.endpoint.client import upload
from orchestrator.farm.again.importing import Importing
from orchestrator.farm.again.refining import Refinements
from orchestrator.farm.again.steering import Steering
from orchestrator.farm.local.database_wait import DatabaseWait
from orchestrator.farm.local.one_machine import OneMachine, PresentDevices
from orchestrator.farm.local.quota import Quota
from orchestrator.farm.reading.cells import Reading
from orchestrator.farm.submit.requests import Requests
from orchestrator.farm.submit.running import Running
from orchestrator.farm.submit.submission import Submission
from orchestrator.policy.rights import User


class Farm:
    """One farm home. Several processes may have it open and call everything at once."""

    def __init__(self, home: FarmHome, lab: LabConfig, database: Database, machine: OneMachine) -> None:
        """Use `Farm.open`."""
        self.home = home
        self.lab = lab
        self.database = database
        self._machine = machine
        self.devices = PresentDevices(lab, database, machine)
        self.running = Running(lab, database, machine)
        self.reading = Reading(home, lab, database)
        self._serve(None)

    def _serve(self, user: User | None) -> None:
        """Make the parts that depend on who asks; None: whoever has the database."""
        quota = Quota(user, self.lab.user_cells)
        self.submission = Submission(self.database, self.devices, user, quota)
        self.requests = Requests(self.home, self.lab, self.submission)
        self.steering = Steering(self.database, user, quota)
        self.refinements = Refinements(self.database, self.devices, self.home, user, quota)
        self.importing = Importing(self.database)

    @classmethod
    def open(
        cls,
        home: FarmHome,
        *,
        lab: LabConfig | None = None,
        serving: bool = False,
        command: Sequence[str] | None = None,
    ) -> "Farm":
        """Create the folders, bring the database up to date, and clean up after a killed scheduler.

        The database of a lab is brought up to date only by the process that is `serving`: other versions may
        be working on it. `lab`: its database and broker; None: one machine. `command` starts another embedded
        agent than this package's own. Raises `UnreachableError`, and `UsageError` where one machine would
        schedule on a lab's database.
        """
        lab = lab or LabConfig()
        make_folders(home)
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

    def seen_by(self, user: User) -> "Farm":
        """Return the same farm for a user of the endpoint, who may change less."""
        # Shallow: database, devices and readers are shared; only the parts that `_serve` makes are its own.
        seen = copy(self)
        seen._serve(user)
        return seen

    @property
    def schedules_elsewhere(self) -> bool:
        """Whether another process schedules: a campaign goes on when this one ends."""
        return self.lab.is_lab

    def begin(self) -> None:
        """Begin with what a submission needs besides its files: the list of devices, as `devices.begin`."""
        self.devices.begin()

    def send(self, files: Iterable[str], note: Callable[[str], None]) -> None:
        """Send files of this machine's store (sha256) to the farm's if it is another. Raises as `upload`."""
        upload(self.home, self.lab, self.database, files, note)

    def wait(self, say: Callable[[str], None]) -> DatabaseWait:
        """Return a wait that outlasts the absence of the farm; `say` gets each line for the user."""
        return DatabaseWait(say)

    def doctor(self) -> list[Check]:
        """Check every part of the farm; a fault comes with its fix."""
        return examine(self.home, self.database, self.devices.hello, self.lab)

    def close(self) -> None:
        """End what was kept for a campaign that did not come, and close the database."""
        try:
            self._machine.close()
        finally:
            self.database.close()

    def __enter__(self) -> "Farm":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
