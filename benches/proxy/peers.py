"""The proxies under test, what stands behind them, and how their CPU time is read."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

HZ = os.sysconf("SC_CLK_TCK")
BACKENDS = [19001, 19002, 19003, 19004]
PORTS = {"plimsoll": 18001, "haproxy": 18002, "nginx": 18003, "envoy": 18004}
METRICS = 18012
# The load generator and the backends share one core, the proxy has the other.
LOAD_CORE, PROXY_CORE = "0", "1"

BACKEND_NGINX = """
daemon off; worker_processes 1; pid {dir}/backend.pid; error_log {dir}/backend.err warn; user root;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 300s; open_file_cache max=10;
  sendfile on; tcp_nodelay on; default_type text/plain; add_header plimsoll-chip 1 always;
  server {{ {listens} root {dir}/www; location = /16k {{ }} location / {{ return 200 "{body}"; }} }} }}
"""

NGINX = """
daemon off; worker_processes 1; pid {dir}/nginx.pid; error_log {dir}/nginx.err warn; user root;
events {{ worker_connections 8192; }}
http {{ access_log off; keepalive_requests 1000000000; keepalive_timeout 300s; tcp_nodelay on; server_tokens off;
  upstream be {{ random two least_conn; {servers} keepalive 512; keepalive_requests 1000000000;
    keepalive_timeout 300s; }}
  server {{ listen 127.0.0.1:{port} backlog=4096;
    location / {{ proxy_pass http://be; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header x-strip ""; proxy_hide_header plimsoll-chip; proxy_next_upstream error timeout http_429;
      proxy_buffer_size 16k; proxy_buffers 8 16k; }} }} }}
"""

HAPROXY = """
global
  nbthread 1
  maxconn 8000
defaults
  mode http
  option http-keep-alive
  http-reuse always
  timeout client 300s
  timeout server 300s
  timeout connect 5s
  timeout http-keep-alive 300s
frontend fe
  bind 127.0.0.1:{port} backlog 4096
  http-request del-header x-strip
  http-response del-header plimsoll-chip
  default_backend be
backend be
  balance random(2)
  retries 2
{servers}
"""

PLIMSOLL = """
proxy:
  threads: {threads}
  socket: {dir}/plimsoll.sock
  metrics: {{ listen: "127.0.0.1:{metrics}" }}
  access_log: {{ file: {dir}/plimsoll-access.log, sample: 0.01 }}
  egress:
    - {{ name: bench, listen: "127.0.0.1:{port}", timeouts: {{ connect: 5s, request: 300s, idle: 300s }}, x_forwarded: append }}
  pools:
    - {{ name: be, policy: {policy}, health: {{ path: / }}, ejection: {{ consecutive_failures: 5 }}, backends: [ {servers} ] }}
"""


def envoy_config(port):
    address = lambda p: {"socket_address": {"address": "127.0.0.1", "port_value": p}}
    v3 = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3."
    router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
    manager = {
        "@type": v3 + "HttpConnectionManager",
        "stat_prefix": "i",
        "codec_type": "HTTP1",
        "generate_request_id": False,
        "route_config": {
            "name": "r",
            "virtual_hosts": [
                {
                    "name": "v",
                    "domains": ["*"],
                    "request_headers_to_remove": ["x-strip"],
                    "response_headers_to_remove": ["plimsoll-chip"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "be"}}],
                }
            ],
        },
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": router, "dynamic_stats": False, "suppress_envoy_headers": True},
            }
        ],
    }
    filters = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    endpoints = [{"endpoint": {"address": address(p)}} for p in BACKENDS]
    cluster = {
        "name": "be",
        "type": "STATIC",
        "connect_timeout": "5s",
        "lb_policy": "LEAST_REQUEST",
        "load_assignment": {"cluster_name": "be", "endpoints": [{"lb_endpoints": endpoints}]},
    }
    listener = {"name": "l", "address": address(port), "filter_chains": [{"filters": filters}]}
    return json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}})


class Bench:
    """A directory for configurations, the backends, and proxies that are started and stopped."""

    def __init__(self, args):
        self.args = args
        self.dir = tempfile.mkdtemp(prefix="plimsoll-proxy-bench-")
        self.running = []
        os.makedirs(f"{self.dir}/www")
        with open(f"{self.dir}/www/16k", "w") as file:
            file.write("x" * (16 << 10))
        listens = " ".join(f"listen 127.0.0.1:{port} backlog=4096;" for port in BACKENDS)
        self.write("backend.conf", BACKEND_NGINX.format(dir=self.dir, listens=listens, body="x" * 128))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        self.spawn("backend", LOAD_CORE, [nginx, "-c", f"{self.dir}/backend.conf"], BACKENDS[0])

    def write(self, name, text):
        path = f"{self.dir}/{name}"
        with open(path, "w") as file:
            file.write(text)
        return path

    def spawn(self, name, cores, command, port):
        log = open(f"{self.dir}/{name}.log", "w")
        process = subprocess.Popen(["taskset", "-c", cores] + command, stdout=log, stderr=log)
        self.running.append(process)
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process
            except OSError:
                if process.poll() is not None:
                    break
                time.sleep(0.05)
        raise SystemExit(f"{name} does not listen on port {port}: see {log.name}")

    def start(self, name, threads=1, policy="bloc", cores=PROXY_CORE):
        """Starts a proxy by its name; `plimsoll@PATH` is another build of ours."""
        kind, _, path = name.partition("@")
        port = PORTS[kind]
        if kind == "plimsoll":
            servers = ", ".join(f'{{ name: b{p}, address: "127.0.0.1:{p}" }}' for p in BACKENDS)
            text = PLIMSOLL.format(
                dir=self.dir, port=port, metrics=METRICS, servers=servers, threads=threads, policy=policy
            )
            command = [path or self.args.plimsoll, "proxy", "run", "--config", self.write("plimsoll.yaml", text)]
        elif kind == "haproxy":
            servers = "\n".join(f"  server s{p} 127.0.0.1:{p} weight 100" for p in BACKENDS)
            text = HAPROXY.format(port=port, servers=servers)
            command = [path or "/usr/sbin/haproxy", "-db", "-f", self.write("haproxy.cfg", text)]
        elif kind == "nginx":
            servers = " ".join(f"server 127.0.0.1:{p};" for p in BACKENDS)
            text = NGINX.format(dir=self.dir, port=port, servers=servers)
            command = [path or "/usr/sbin/nginx", "-c", self.write("nginx.conf", text)]
        else:
            config = self.write("envoy.json", envoy_config(port))
            command = [path or self.args.envoy, "-c", config, "--concurrency", "1", "--disable-hot-restart"]
            command += ["-l", "error"]
        return self.spawn(kind, cores, command, port), port

    def stop(self, process):
        process.terminate()
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self.running.remove(process)

    def close(self):
        for process in list(self.running):
            self.stop(process)
        shutil.rmtree(self.dir, ignore_errors=True)


def family(pid):
    """A process and its children."""
    found = [pid]
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        for child in file.read().split():
            found += family(int(child))
    return found


def cpu_seconds(pid):
    """User and system time of a process, its threads and its children."""
    ticks = 0
    for one in family(pid):
        with open(f"/proc/{one}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / HZ


def rss_kb(pid):
    total = 0
    for one in family(pid):
        with open(f"/proc/{one}/status") as file:
            total += int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))
    return total


def wrk(port, connections, path, seconds):
    """Requests that were answered; those that failed end the run."""
    command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s"]
    command += ["-H", "x-strip: y", f"http://127.0.0.1:{port}{path}"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if "Non-2xx" in output or "Socket errors" in output:
        raise SystemExit(f"port {port}: {output}")
    return int(re.search(r"(\d+) requests in", output).group(1))


def syscalls(bench, name, connections, path, seconds):
    """System calls per request, by name."""
    process, port = bench.start(name)
    try:
        wrk(port, connections, path, 1)
        out = f"{bench.dir}/strace"
        traced = family(process.pid)[-1]
        strace = subprocess.Popen(["strace", "-f", "-c", "-o", out, "-p", str(traced)], stderr=subprocess.DEVNULL)
        time.sleep(0.6)
        requests = wrk(port, connections, path, seconds)
        strace.send_signal(signal.SIGINT)
        strace.wait()
        counts = {}
        with open(out) as file:
            for line in file:
                fields = line.split()
                if len(fields) >= 5 and fields[0][0].isdigit() and fields[-1] != "total":
                    counts[fields[-1]] = int(fields[3]) / requests
        return counts
    finally:
        bench.stop(process)
