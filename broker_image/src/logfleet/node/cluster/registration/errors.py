"""Why a broker must not run."""


class RegistrationError(Exception):
    """This broker must not run. The text says why, in one line.

    ├── WrongCluster          its data belongs to another cluster than the metadata store
    ├── NoCluster             there is none yet, and this broker must not begin one
    ├── DataWithoutIdentity   a log directory holds logs and does not say whose
    ├── LevelTooHigh          the cluster's feature level is one that it cannot do
    └── IdTaken               another process holds its id
    """


class WrongCluster(RegistrationError):
    pass


class NoCluster(RegistrationError):
    pass


class DataWithoutIdentity(RegistrationError):
    pass


class LevelTooHigh(RegistrationError):
    pass


class IdTaken(RegistrationError):
    pass
