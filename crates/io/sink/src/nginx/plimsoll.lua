-- Plimsoll's balancer for NGINX: which server each request goes to, by weights that may change while NGINX runs, and
-- what became of it. Weights and counters are in the shared dictionary `plimsoll`, so that they outlive a reload.
--
-- In the dictionary, for pool P, server S and worker process W:
--   generation       another one after a restart
--   v:P  w:P  e:P    version of the weights; weights as "S=10,…"; the plan's epoch
--   workers  k:1 …   how many places for workers there are; the process number of each
--   b:W              somebody is taking over the counters of worker W, which has ended
--   n:W:P/S  d:W:P/S requests begun and ended;  x:W:P/S  failed attempts;  a:W:P/S  answers of the server itself
--   n:0:P/S …        the same of workers that have ended
--   f:P/S            requests in flight over all workers (leastconn compares it at every pick)
local M = {}

local balancer = require "ngx.balancer"
local dict = ngx.shared.plimsoll or error("plimsoll: `lua_shared_dict plimsoll 4m;` is missing")

local VERSION, GREATEST = 1, 1000
-- As NGINX's own upstreams: one failed attempt keeps a server out of a worker's choice for ten seconds.
local FAIL_TIMEOUT = 10
-- An attempt that failed is made once more, at another server (proxy_next_upstream says what counts as failed).
local MORE_TRIES = 1
-- Seconds between two looks for workers that have ended, and how long one may take to take over what they counted.
local BURY_EVERY, CLAIM = 10, 60
-- Workers at a time, with those of reloads that still have requests.
local PLACES = 4096

local pools, order = {}, {}
-- Requests of this worker by their id: a table that internal redirects do not empty, as they do ngx.ctx.
local flying, tried = {}, {}
local me

-- Declares a pool: method is "roundrobin" or "leastconn", servers are { name, "ip:port", weight }.
function M.pool(name, method, servers)
    assert(method == "roundrobin" or method == "leastconn", "plimsoll: a method is roundrobin or leastconn")
    local pool = { name = name, method = method, servers = {}, by_name = {}, version = -1, turn = 0 }
    for i, entry in ipairs(servers) do
        local host, port = entry[2]:match("^(.+):(%d+)$")
        assert(host, "plimsoll: " .. entry[1] .. ": expected ip:port, found " .. entry[2])
        local server = {
            name = entry[1], address = entry[2], host = host, port = tonumber(port), pool = pool,
            configured = entry[3] or 100, weight = entry[3] or 100, current = 0, down_until = 0,
        }
        assert(not pool.by_name[server.name], "plimsoll: two servers are called " .. server.name)
        pool.servers[i], pool.by_name[server.name] = server, server
    end
    pools[name], order[#order + 1] = pool, name
end

-- Takes over weights that were set since. A server that has joined since gets the mean of the others. Where all that
-- had a weight have left, the configured weights are in force again: somebody must serve.
local function refresh(pool)
    local version = dict:get("v:" .. pool.name) or 0
    if version == pool.version then return end
    local set, sum, count = {}, 0, 0
    for name, weight in (dict:get("w:" .. pool.name) or ""):gmatch("([^=,]+)=(%d+)") do
        if pool.by_name[name] then
            set[name] = tonumber(weight)
            sum, count = sum + set[name], count + 1
        end
    end
    for _, server in ipairs(pool.servers) do
        local joined = math.max(1, math.floor(sum / count + 0.5))
        server.weight = sum == 0 and server.configured or set[server.name] or joined
    end
    pool.version = version
end

local checked = 0

-- What workers that have ended had in flight has ended too; their counters are kept. Each of them is taken over by one
-- worker only; one that is killed over it is followed by another after CLAIM seconds.
local function bury()
    if ngx.now() - checked < 1 then return end
    checked = ngx.now()
    for k = 1, dict:get("workers") or 0 do
        local pid = dict:get("k:" .. k)
        local file = pid and io.open("/proc/" .. pid .. "/stat")
        if file then
            file:close()
        elseif pid and dict:add("b:" .. pid, 1, CLAIM) then
            for _, pool in pairs(pools) do
                for _, server in ipairs(pool.servers) do
                    local tail = ":" .. pool.name .. "/" .. server.name
                    local function take(kind)
                        local count = dict:get(kind .. pid .. tail) or 0
                        dict:delete(kind .. pid .. tail)
                        return count
                    end
                    local begun, done = take("n:"), take("d:")
                    dict:incr("n:0" .. tail, begun, 0)
                    dict:incr("d:0" .. tail, begun, 0)
                    dict:incr("x:0" .. tail, take("x:"), 0)
                    dict:incr("a:0" .. tail, take("a:"), 0)
                    if pool.method == "leastconn" then dict:incr("f" .. tail, done - begun, 0) end
                end
            end
            if dict:get("k:" .. k) == pid then dict:delete("k:" .. k) end
            dict:delete("b:" .. pid)
        end
    end
end

local function bury_now_and_then(ending)
    if not ending then bury() end
end

-- This worker's place and keys, made at its first request. Workers look after each other: nobody may be asking.
local function enter()
    me = ngx.worker.pid()
    local k = 1
    while k <= PLACES and not dict:add("k:" .. k, me) do k = k + 1 end
    while (dict:get("workers") or 0) < k do dict:incr("workers", 1, 0) end
    local done, why = ngx.timer.every(BURY_EVERY, bury_now_and_then)
    if not done then ngx.log(ngx.ERR, "plimsoll: no timer: ", why) end
    for _, pool in pairs(pools) do
        for _, server in ipairs(pool.servers) do
            local tail = ":" .. pool.name .. "/" .. server.name
            server.begun, server.done = "n:" .. me .. tail, "d:" .. me .. tail
            server.failed, server.answered = "x:" .. me .. tail, "a:" .. me .. tail
            server.flight = "f" .. tail
        end
    end
end

-- The smooth round robin of NGINX's own upstreams. Turns go on when weights change: a new weight acts from the next
-- pick on, and no server gets its turn twice for it.
local function next_in_turn(pool, allowed, now, before)
    local best, total = nil, 0
    for _, server in ipairs(pool.servers) do
        if server.weight > 0 and allowed(server, now, before) then
            server.current = server.current + server.weight
            total = total + server.weight
            if not best or server.current > best.current then best = server end
        end
    end
    if best then best.current = best.current - total end
    return best
end

-- As HAProxy's leastconn: an idle server first, else where (in flight + 1) / weight is least; ties go in turn.
local function least_loaded(pool, allowed, now, before)
    local best, least, count = nil, math.huge, #pool.servers
    pool.turn = pool.turn % count + 1
    for i = 0, count - 1 do
        local server = pool.servers[(pool.turn + i - 1) % count + 1]
        if server.weight > 0 and allowed(server, now, before) then
            local flight = dict:get(server.flight) or 0
            local key = flight > 0 and (flight + 1) / server.weight or 0
            if key < least then best, least = server, key end
        end
    end
    return best
end

-- Who may be picked, from the best to the last resort. (No closures: LuaJIT compiles none.)
local function sound(server, now, before) return server.down_until <= now and not (before and before[server]) end
local function fresh(server, _, before) return not (before and before[server]) end
local function anybody() return true end

local function pick(pool, before)
    local choose = pool.method == "leastconn" and least_loaded or next_in_turn
    local now = ngx.now()
    return choose(pool, sound, now, before) or choose(pool, fresh, now, before) or choose(pool, anybody, now, before)
end

local function begin(server)
    dict:incr(server.begun, 1, 0)
    if server.pool.method == "leastconn" then dict:incr(server.flight, 1, 0) end
end

local function finish(server, answered, failed)
    dict:incr(server.done, 1, 0)
    if server.pool.method == "leastconn" then dict:incr(server.flight, -1, 0) end
    if answered then dict:incr(server.answered, 1, 0) end
    if failed then dict:incr(server.failed, 1, 0) end
end

-- A part of a list of attempts, which are parted by `, `, and by ` : ` where the request was redirected.
local function part(list, at)
    local seen = 0
    for each in list:gmatch("[^ ,]+") do
        if each ~= ":" then
            seen = seen + 1
            if seen == at then return each end
        end
    end
end

-- What became of the attempt at a server: its status, whether it answered, and whether it was the request's last. Of
-- several attempts it is the latest at its address: others may have gone to an upstream that is not picked here.
local function outcome(server)
    local addresses, status = ngx.var.upstream_addr or "", ngx.var.upstream_status or ""
    local header_time, is_last = ngx.var.upstream_header_time or "", true
    if addresses:find(" ", 1, true) then
        local at, count = nil, 0
        for address in addresses:gmatch("[^ ,]+") do
            if address ~= ":" then
                count = count + 1
                if address == server.address then at = count end
            end
        end
        at = at or count
        status, header_time, is_last = part(status, at) or "", part(header_time, at) or "", at == count
    end
    return tonumber(status), header_time ~= "" and header_time ~= "-", is_last
end

-- An attempt has ended that no other one follows in its upstream.
local function conclude(server, status, answered, gave_up)
    local failed = not gave_up and (not answered or (status or 500) >= 500)
    finish(server, answered, failed)
    if answered then
        server.down_until = 0
    elseif failed then
        server.down_until = ngx.now() + FAIL_TIMEOUT
    end
end

-- balancer_by_lua: which server this attempt goes to.
function M.balance(name)
    if not me then enter() end
    local pool = pools[name]
    refresh(pool)
    local id = ngx.var.request_id
    local failure = balancer.get_last_failure()
    -- A subrequest has the id of its request, and nothing else of it.
    local last = not ngx.is_subrequest and flying[id]
    if failure and last then
        -- "next": the server has answered, with a status that is to be tried elsewhere.
        finish(last, failure == "next", true)
        if failure == "failed" then last.down_until = ngx.now() + FAIL_TIMEOUT end
        local before = tried[id] or {}
        before[last], tried[id] = true, before
    elseif not ngx.is_subrequest then
        if last then
            -- Redirected inside NGINX (error_page, X-Accel-Redirect): what came before is over.
            flying[id] = nil
            local was, answered = outcome(last)
            conclude(last, was, answered, false)
        end
        balancer.set_more_tries(MORE_TRIES)
    end
    local server = pick(pool, tried[id])
    if not server then
        flying[id] = nil
        ngx.log(ngx.ERR, "plimsoll: no server of ", name, " has a weight")
        return ngx.exit(502)
    end
    local done, why = balancer.set_current_peer(server.host, server.port)
    if not done then
        flying[id] = nil
        ngx.log(ngx.ERR, "plimsoll: ", server.name, " of ", name, ": ", why)
        return ngx.exit(500)
    end
    -- NGINX does not log subrequests, so that their end is not seen.
    if not ngx.is_subrequest then
        begin(server)
        flying[id] = server
    end
end

-- log_by_lua: what became of a request.
function M.log()
    local id = ngx.var.request_id
    local server = flying[id]
    if not server then return end
    flying[id], tried[id] = nil, nil
    local status, answered, is_last = outcome(server)
    -- A client that gave up before an answer (499), or in the midst of its upload (400, 408), says nothing about the
    -- server.
    local gave_up = not answered and is_last and (ngx.status == 499 or ngx.status == 400 or ngx.status == 408)
    conclude(server, status, answered, gave_up)
end

local function report(pool, lines)
    refresh(pool)
    local pids, seen = { 0 }, { [0] = true }
    for k = 1, dict:get("workers") or 0 do
        local pid = dict:get("k:" .. k)
        if pid and not seen[pid] then pids[#pids + 1], seen[pid] = pid, true end
    end
    lines[#lines + 1] = table.concat({ "pool", pool.name, pool.method, dict:get("e:" .. pool.name) or "-" }, " ")
    for _, server in ipairs(pool.servers) do
        local tail = ":" .. pool.name .. "/" .. server.name
        local function sum(kind)
            local total = 0
            for _, pid in ipairs(pids) do total = total + (dict:get(kind .. pid .. tail) or 0) end
            return total
        end
        -- What ended is read first, and what is in flight is never less than nothing: counters of a worker that has
        -- ended may be on their way just now.
        local done, failed, answered, begun = sum("d:"), sum("x:"), sum("a:"), sum("n:")
        lines[#lines + 1] = table.concat({
            "server", server.name, server.address, server.weight, server.configured,
            math.max(0, begun - done), string.format("%.0f", begun), string.format("%.0f", failed), string.format("%.0f", answered),
        }, " ")
    end
end

-- The weights of a plan, all or none; nil and the reason where it must not be.
local function set(pool, body)
    refresh(pool)
    local epoch, changed, wanted, some = nil, 0, {}, false
    for line in body:gmatch("[^\n]+") do
        local name, number = line:match("^(%S+) (%d+)$")
        number = tonumber(number)
        if not number then return nil, "not_understood " .. line end
        if name == "epoch" and not epoch then
            epoch = number
        elseif not pool.by_name[name] then
            return nil, "unknown_server " .. name
        elseif number > GREATEST then
            return nil, "invalid_plan weight " .. number .. " of " .. name .. " is beyond " .. GREATEST
        else
            wanted[name] = number
        end
    end
    if not epoch then return nil, "not_understood a plan begins with its epoch" end
    local all = {}
    for i, server in ipairs(pool.servers) do
        local weight = wanted[server.name] or server.weight
        if weight ~= server.weight then changed = changed + 1 end
        some = some or weight > 0
        all[i] = server.name .. "=" .. weight
    end
    if not some then return nil, "invalid_plan every server of " .. pool.name .. " at weight 0" end
    local done, why = dict:safe_set("w:" .. pool.name, table.concat(all, ","))
    if not done then return nil, "failed the shared dictionary is full: " .. why end
    dict:set("e:" .. pool.name, epoch)
    dict:incr("v:" .. pool.name, 1, 0)
    return changed
end

-- content_by_lua of the local socket: GET / lists all pools, GET /POOL one, PUT /POOL sets weights.
function M.control()
    ngx.header.content_type = "text/plain"
    bury()
    dict:add("generation", math.floor(ngx.now() * 1000))
    local lines = { "plimsoll " .. VERSION, "generation " .. string.format("%.0f", dict:get("generation")) }
    local name = ngx.var.uri:sub(2)
    local pool = pools[name]
    if name ~= "" and not pool then
        ngx.status = 404
        ngx.say("refused unknown_pool ", table.concat(order, " "))
        return
    end
    if ngx.req.get_method() == "PUT" then
        ngx.req.read_body()
        local changed, why = set(pool, ngx.req.get_body_data() or "")
        if not changed then
            ngx.status = 409
            ngx.say("refused ", why)
            return
        end
        lines[#lines + 1] = "changed " .. changed
    end
    for _, each in ipairs(order) do
        if not pool or pool.name == each then report(pools[each], lines) end
    end
    lines[#lines + 1] = "end\n"
    ngx.print(table.concat(lines, "\n"))
end

return M
