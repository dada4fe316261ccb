'use strict';
// GET /work?work_us=N burns N microseconds of this process's CPU; GET /health waits for the same loop.
const http = require('http');
const [host, port, usualWorkUs, healthUs] = process.argv.slice(2);
const MOST_US = 60e6;

function burn(us) {
  const start = process.cpuUsage();
  let state = 1;
  for (;;) {
    const used = process.cpuUsage(start);
    if (used.user + used.system >= Math.min(us, MOST_US)) return state;
    for (let i = 0; i < 500; i++) state = Math.imul(state, 1664525) + 1013904223;
  }
}

const server = http.createServer((request, response) => {
  const url = new URL(request.url, 'http://lab');
  const wanted = url.searchParams.get('work_us') ?? usualWorkUs;
  let status = 200;
  if (url.pathname === '/health') burn(Number(healthUs));
  else if (url.pathname !== '/work') status = 404;
  else if (/^\d+$/.test(wanted)) burn(Number(wanted));
  else status = 400;
  response.writeHead(status, { 'content-type': 'text/plain', 'content-length': 3 });
  response.end('OK\n');
});
server.keepAliveTimeout = 120000;
server.listen(Number(port), host);
