"""The simulated service by itself, until it is interrupted: python3 -m doubles.cloud, in tests/."""

import argparse
import json
import signal
import sys
import threading

from . import Cloud
from .settings import Settings


def read_arguments():
    parser = argparse.ArgumentParser(prog="python3 -m doubles.cloud", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--control", type=int, default=0, metavar="PORT", help="of the control server")
    for name in ("token", "team", "project"):
        parser.add_argument("--" + name)
    parser.add_argument("--image", action="append", default=[], metavar="NAME[=DIR]",
                        help="an image, and the directory of its programs; ad-desktop when there is none")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a setting: " + ", ".join(Settings.__dataclass_fields__))
    parser.add_argument("--sandboxes", type=int, default=0, metavar="N", help="so many, made beforehand")
    parser.add_argument("--tags", default="{}", metavar="JSON", help="their tags")
    parser.add_argument("--environment", metavar="FILE",
                        help="write what a client needs as lines of a shell: VERCEL_API_URL and so on")
    return parser.parse_args()


def read_value(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def main():
    arguments = read_arguments()
    values = {name: read_value(value) for name, _, value in (one.partition("=") for one in arguments.set)}
    if arguments.image:
        values["images"] = {name: path or None for name, _, path in (one.partition("=") for one in arguments.image)}
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: done.set())
    with Cloud(arguments.port, arguments.control or True, arguments.token, arguments.team, arguments.project,
               **values) as cloud:
        for number in range(arguments.sandboxes):
            cloud.make_sandbox(f"sandbox-{number:05}", tags=json.loads(arguments.tags), timeout=86400000)
        told = {"VERCEL_API_URL": cloud.url, "VERCEL_TOKEN": cloud.token, "VERCEL_TEAM_ID": cloud.team,
                "VERCEL_PROJECT_ID": cloud.project, "CONTROL_URL": cloud.control_url}
        if arguments.environment:
            with open(arguments.environment, "w", encoding="utf-8") as file:
                file.writelines(f"export {name}='{value}'\n" for name, value in told.items())
        print(json.dumps(told), flush=True)
        done.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
