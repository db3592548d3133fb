#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Hosts on one machine that are joined by a slow network: a network namespace for each host, a bridge, and pairs of virtual Ethernet devices.

  trshosts.py --hosts 4 --gbps 1 build/trshard -options_file run.opts       runs the program by mpirun, with one rank on each host

The hosts have names (host1, host2, ...), addresses (10.77.0.1, ...) and a device eth0. Open MPI sees different hosts, so ranks exchange messages
by TCP and share no memory. tc's token bucket filter limits what a host sends and what it receives to --gbps. netem delays packets by
--delay-us. Kernels of small virtual machines often lack netem; then there is no delay, and the tool says so. All hosts share the machine's
processors, files and memory.

The namespaces have no names outside. They belong to one process, which ends when the tool ends, even if the tool is killed. The kernel then
ends all processes in the namespaces and removes the namespaces. The tool needs root or user namespaces, and Open MPI 4.
"""
import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys

import bench_common as common

NET = "10.77.0"
MOST = 200  # hosts
BURST_S = 5e-4  # a token bucket holds as much as its link carries in this time
SMALLEST_BURST, QUEUE = 16 << 10, 8 << 20  # bytes
# The first process of the namespaces. It ends with its standard input, and everything else ends with it.
KEEPER = """set -e
mount -t tmpfs trshosts /run
mkdir /run/netns
hostname switch
ip link set lo up
ip link add name switch type bridge
ip link set switch up
ip addr add {net}.254/24 dev switch
for i in $(seq {n}); do
  ip netns add host$i
  ip link add name port$i type veth peer name eth0 netns host$i
  ip link set port$i master switch up
  ip -n host$i addr add {net}.$i/24 dev eth0
  ip -n host$i link set eth0 up
  ip -n host$i link set lo up
  echo "host$i slots=1" >> /run/hosts
done
cat > /run/agent <<'AGENT'
#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; eval "$1"' "$host" "$*"
AGENT
chmod +x /run/agent
echo ready
exec cat
"""
# Measures the bytes per second of one TCP connection: [receiver | address of the receiver].
PROBE = """
import socket, sys, time
if len(sys.argv) == 1:
    listener = socket.create_server(("", 5077))
    print("ready", flush=True)
    connection, n, buffer = listener.accept()[0], 0, bytearray(1 << 20)
    start = None
    while got := connection.recv_into(buffer):
        n, start = n + got, start or time.monotonic()
    print(n / (time.monotonic() - start))
else:
    connection, end = socket.create_connection((sys.argv[1], 5077)), time.monotonic() + 1
    while time.monotonic() < end:
        connection.sendall(bytes(1 << 18))
"""


os.environ["PATH"] = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"  # tc, which the PATH of users may lack


def unshare_command():
    return ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc"]


def why_not():
    """The reason why this machine cannot have such hosts, or None."""
    for tool, package in (("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2"), ("tc", "iproute2"), ("mpirun", "openmpi-bin")):
        if not shutil.which(tool):
            return f"there is no program {tool} (Debian: apt-get install {package})"
    version = subprocess.run(["mpirun", "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    if not re.match(r"mpirun \(Open MPI\) 4\.", version):
        return f"mpirun is not Open MPI 4: {version.splitlines()[0] if version else 'it says nothing'}"
    probe = "mount -t tmpfs none /run && ip link add name probe type veth peer name other && tc qdisc add dev probe root tbf rate 1gbit burst 64kb limit 1mb && ip link add name switch type bridge"
    found = subprocess.run([*unshare_command(), "sh", "-c", probe], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return f"namespaces with shaped links: {found.stdout.strip() or found.returncode}" if found.returncode else None


class Hosts:
    """n hosts, from the start of the with statement to its end."""

    def __init__(self, n):
        if not 1 <= n <= MOST:
            raise ValueError(f"{n} hosts: from 1 to {MOST} are possible")
        self.n, self.keeper, self.pid = n, None, None

    def __enter__(self):
        self.keeper = subprocess.Popen([*unshare_command(), "sh", "-c", KEEPER.format(net=NET, n=self.n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, start_new_session=True)
        if self.keeper.stdout.readline() != "ready\n":
            said = self.keeper.communicate()[1].strip()
            raise common.Failed(f"the hosts cannot be made: {said}")
        with open(f"/proc/{self.keeper.pid}/task/{self.keeper.pid}/children", encoding="ascii") as file:
            self.pid = int(file.read().split()[0])
        return self

    def __exit__(self, *_):
        self.keeper.communicate()  # closes its standard input, so it ends

    def inside(self, *command, host=None):
        """A command that runs the given command beside the switch, or on a host. It keeps the working directory."""
        enter = ["nsenter", "--target", str(self.pid), *(["--user", "--preserve-credentials"] if os.geteuid() else []), "--net", "--mount", "--uts", "--pid",
                 f"--wd={os.getcwd()}"]
        return [*enter, *(["ip", "netns", "exec", f"host{host}"] if host else []), *command]

    def mpirun(self, *options):
        """mpirun with one rank on each host. The ranks' environment is the caller's."""
        mca = {"plm": "rsh", "plm_rsh_agent": "/run/agent", "pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "switch,eth0",
               "mpi_yield_when_idle": "1", "orte_tmpdir_base": "/run"}
        return self.inside("mpirun", "--hostfile", "/run/hosts", "-n", str(self.n), "--map-by", "node", "--bind-to", "none", "--leave-session-attached",
                           *(word for key, value in mca.items() for word in ("--mca", key, value)), *options)

    def shell(self, script):
        found = subprocess.run(self.inside("sh", "-c", script), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return found.returncode, found.stdout.strip()

    def can_delay(self):
        return self.shell("ip link add name probe type veth && tc qdisc add dev probe root netem delay 1us; found=$?; ip link del probe; exit $found")[0] == 0

    def shape(self, gbps, delay_us=0.0):
        """Limits what each host sends and receives to gbps (0: no limit), and delays what it sends. The delay needs can_delay()."""
        script = ["set -e"]
        for i in range(1, self.n + 1):
            for tc, device, delay in ((f"tc -n host{i}", "eth0", delay_us), ("tc", f"port{i}", 0.0)):
                script.append(f"{tc} qdisc del dev {device} root 2> /dev/null || true")
                parent = "root"
                if delay:
                    script.append(f"{tc} qdisc add dev {device} root handle 1: netem delay {delay:g}us limit 100000")
                    parent = "parent 1:"
                if gbps:
                    burst = max(SMALLEST_BURST, int(gbps * 1e9 / 8 * BURST_S))
                    script.append(f"{tc} qdisc add dev {device} {parent} handle 2: tbf rate {gbps * 1e3:g}mbit burst {burst}b limit {QUEUE}b")
        code, said = self.shell("\n".join(script))
        if code:
            raise common.Failed(f"tc: {said}")

    def measured_gbps(self):
        """What one TCP connection from host 2 to host 1 reaches, in 1e9 bits/s."""
        with subprocess.Popen(self.inside(sys.executable, "-c", PROBE, host=1), stdout=subprocess.PIPE, text=True) as receiver:
            receiver.stdout.readline()
            subprocess.run(self.inside(sys.executable, "-c", PROBE, f"{NET}.1", host=2), check=True)
            return float(receiver.stdout.readline()) * 8 / 1e9

    def processor_seconds(self):
        """The processors' time of all runs on the hosts. Processes that mpirun did not wait for belong to the first process, which does not wait either, so
        their time is in no other process's account before the hosts end."""
        seconds = 0.0
        with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
            orphans = file.read().split()
        for pid in orphans:
            with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                seconds += sum(int(x) for x in file.read().rpartition(")")[2].split()[11:15]) / os.sysconf("SC_CLK_TCK")
        return seconds

    def namespace(self):
        """The inode of the switch's network namespace, which identifies it."""
        return os.stat(f"/proc/{self.pid}/ns/net").st_ino


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--gbps", type=float, default=0.0, help="1e9 bits/s that a host sends or receives; 0: no limit (default: %(default)s)")
    parser.add_argument("--delay-us", type=float, default=0.0, help="of each packet (default: %(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")
    args = parser.parse_args()
    if not args.command or not 1 <= args.hosts <= MOST or args.gbps < 0 or args.delay_us < 0:
        parser.error(f"wanted: a program, 1 to {MOST} --hosts, and numbers of at least 0")
    reason = why_not()
    if reason:
        print(f"trshosts.py: {reason}", file=sys.stderr)
        return 77
    try:
        with Hosts(args.hosts) as hosts:
            print(f"# {args.hosts} hosts on a switch in the network namespace {hosts.namespace()}", file=sys.stderr, flush=True)
            if args.delay_us and not hosts.can_delay():
                print("# this kernel has no netem: no delay", file=sys.stderr)
                args.delay_us = 0.0
            hosts.shape(args.gbps, args.delay_us)
            code = subprocess.run(hosts.mpirun(*args.command), env={**os.environ, **common.threads_environment(1)}, check=False).returncode
            return code if code >= 0 else 128 - code
    except common.Failed as error:
        print(f"trshosts.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
