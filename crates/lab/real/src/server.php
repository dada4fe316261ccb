<?php
// GET /work?work_us=N burns N microseconds of this process's CPU; GET /health waits for the same processes.
const MOST_US = 60000000;

function used_us(): int
{
    $used = getrusage();
    return ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec']) * 1000000
        + $used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec'];
}

function burn(int $us): void
{
    $end = used_us() + min($us, MOST_US);
    $state = 1;
    while (used_us() < $end) {
        for ($i = 0; $i < 500; $i++) {
            $state = ($state * 1664525 + 1013904223) & 0xffffffff;
        }
    }
}

$status = 200;
switch ($_SERVER['DOCUMENT_URI']) {
    case '/work':
        $wanted = $_GET['work_us'] ?? $_SERVER['WORK_US'];
        if (is_string($wanted) && preg_match('/^\d+\z/', $wanted)) {
            burn((int) $wanted);
        } else {
            $status = 400;
        }
        break;
    case '/health':
        burn((int) $_SERVER['HEALTH_US']);
        break;
    default:
        $status = 404;
}
http_response_code($status);
header('Content-Type: text/plain');
header('Content-Length: 3');
echo "OK\n";
