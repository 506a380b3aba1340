"""What can be set of the simulated service, at any time. Above all: everything that nobody is certain of."""

import dataclasses
import math

FOREVER = math.inf


@dataclasses.dataclass
class Settings:
    # How long things take.
    latency_ms: float = 0  # added to every request
    pending_ms: float = 0  # a new session is `pending` for so long; FOREVER: it never runs
    stopping_ms: float = 0  # an ending session is `stopping` for so long
    snapshotting_ms: float = 0  # and then `snapshotting`, when its disk is kept
    session_becomes: str = "running"  # what a new session is after `pending`: also failed, aborted

    # What images there are: name to the directory of the programs that it has besides the machine's own; None: no more
    # than those. No name means the vendor's own image, which is always there.
    images: dict = dataclasses.field(default_factory=lambda: {"ad-desktop": None})
    base_path: str = "/usr/local/bin:/usr/bin:/bin"
    unknown_image_status: int = 404

    # The plan.
    longest_timeout_ms: int = 24 * 3600 * 1000
    most_vcpus: int = 8
    highest_limit: int = 100  # of a page; more is refused
    snapshot_expiration_ms: int = 30 * 24 * 3600 * 1000

    # Not certain: either may be so on the real service.
    bad_token_status: int = 403  # of a token that is missing, unknown, expired or of another team; also 401
    name_taken_status: int = 400  # also 409
    pending_status: int = 422  # of calls to a session that is still pending
    pending_code: str = "sandbox_not_ready"
    gone_session_status: int = 404  # of run and logs for a session that is not there; also 410
    stop_blocks: bool = False  # the reply to a stop comes only when the session has stopped
    stop_while_stopping: int = 200  # also 422
    stop_again: int = 200  # the stop of a stopped session; also 410
    resume_while_stopping: str = "wait"  # for the end, then resume; `refuse`: 422; `ignore`: as without resume
    sandbox_status: str = "session"  # the sandbox says its session's; `coarse`: only running, stopping, stopped
    leaving_kills: bool = False  # a client that leaves a waiting run ends the command
    command_ends_with: str = "pipes"  # closed by all that hold them; `process`: the end of the command itself
    kill_reaches: str = "group"  # `process`: the command's own process alone
    kill_ended_status: int = 422  # of a command that has ended; also 200, 400, 404, 410
    mkdir_is_recursive: bool = True  # where the request does not say
    stop_ends_streams: str = "error"  # line, `sandbox_stopped`; `early`: without a last line; `reset`
    ascii_json: bool = False  # replies escape everything beyond ASCII
    answers_expect: bool = True  # `100 Continue` when a request asks for it
    strict: bool = True  # unknown members and null in a request are refused

    # Of output that a waiting client has not taken so much is read ahead of it, and so much is kept of one command.
    backlog_bytes: int = 8 << 20
    output_bytes: int = 3 << 30

    def change(self, **values):
        for name, value in values.items():
            if name not in self.__dataclass_fields__:
                raise AttributeError(f"no such setting: {name}")
            setattr(self, name, FOREVER if value == "forever" else value)
