'use strict';
// GET /work?work_us=N burns N microseconds of this process's CPU; GET /health answers from the same loop.
const http = require('http');
const [host, port, usualWorkUs] = process.argv.slice(2);

function burn(us) {
  const start = process.cpuUsage();
  let state = 1;
  for (;;) {
    for (let i = 0; i < 500; i++) state = Math.imul(state, 1664525) + 1013904223;
    const used = process.cpuUsage(start);
    if (used.user + used.system >= us) return state;
  }
}

const server = http.createServer((request, response) => {
  const url = new URL(request.url, 'http://lab');
  let status = 200;
  if (url.pathname === '/work') burn(Number(url.searchParams.get('work_us') ?? usualWorkUs));
  else if (url.pathname !== '/health') status = 404;
  response.writeHead(status, { 'content-type': 'text/plain', 'content-length': 3 });
  response.end('OK\n');
});
server.keepAliveTimeout = 120000;
server.listen(Number(port), host);
