-- The beats of some nodes, one after the other, at one instant. KEYS: the board of each beat, a hash. ARGV[1]: the
-- instant in microseconds, or empty for the server's clock. ARGV[1 + i]: report i. Returns {seconds, microseconds, one
-- string for each report}.
--
-- Divides like `Board` in tidegate-overload, which explains the rules. Counts are at most 2^20 and nodes at most 2^12, so
-- that every product below is exact.

local call, sub, read, pack = redis.call, string.sub, struct.unpack, struct.pack
local floor, min, max = math.floor, math.min, math.max

local NODES_MAX = 4096
-- Capacity, in flight, demand, grant, its expiry, and since when it may grow.
local ROW, ROW_BYTES = '>I4I4I4I4I7I7', 30
-- The field with the time until which no grant grows. Nodes have names of eight bytes.
local LEARNING = 'learn'

-- Milliseconds by which a board outlives its last lease.
local slack = 2000
local now_s, now_us
if ARGV[1] == '' then
  local time = call('TIME')
  now_s, now_us = tonumber(time[1]), tonumber(time[2])
else
  -- A manual clock stands still while keys expire by the real one.
  local micros = tonumber(ARGV[1])
  now_us = micros % 1000000
  now_s = (micros - now_us) / 1000000
  slack = 3600000
end
local now = now_s * 1000000 + now_us

-- All live nodes except the reporting one: their sums, and what each wants.
local function others_of(key, node, report)
  local o = { count = 0, capacity = 0, granted = 0, used = 0, wanted = {}, ids = {} }
  local latest = now + report.lease
  local found = call('HGETALL', key)
  for i = 1, #found, 2 do
    local id, raw = found[i], found[i + 1]
    if id == LEARNING then
      o.learning = tonumber(raw)
    elseif #id ~= 8 or #raw ~= ROW_BYTES then
      call('HDEL', key, id)
    else
      local capacity, in_flight, demand, grant, expires, growing = read(ROW, raw)
      if expires <= now then
        call('HDEL', key, id)
      elseif id == node then
        o.mine = { grant = grant, growing = min(growing, now) }
      else
        if expires > latest then
          -- The clock was set back: no lease lasts longer than one that begins now.
          call('HSET', key, id, pack(ROW, capacity, in_flight, demand, grant, latest, min(growing, now)))
        end
        local count = o.count + 1
        o.count = count
        o.capacity = o.capacity + capacity
        o.granted = o.granted + grant
        o.used = o.used + in_flight
        o.wanted[count] = min(demand + floor(demand * report.headroom / 100) + 1, capacity)
        o.ids[count] = id
      end
    end
  end
  if not o.learning or o.learning > latest then
    o.learning = latest
    call('HSET', key, LEARNING, string.format('%.0f', latest))
  end
  return o
end

-- The order of nodes with equal wants.
local function is_before(id, other)
  local high, low = read('>I4I4', id)
  local other_high, other_low = read('>I4I4', other)
  return high < other_high or (high == other_high and low < other_low)
end

-- The node's max-min fair share when more is wanted than the pool has: the smallest wants first, the others share the
-- rest.
local function fair_share(o, node, want, pool)
  local rank, wanted = 1, o.wanted
  for i = 1, o.count do
    if wanted[i] < want or (wanted[i] == want and is_before(o.ids[i], node)) then
      rank = rank + 1
    end
  end
  wanted[o.count + 1] = want
  table.sort(wanted)
  local left, waiting = pool, o.count + 1
  for i = 1, rank - 1 do
    left = left - min(wanted[i], floor(left / waiting))
    waiting = waiting - 1
  end
  return min(want, floor(left / waiting))
end

-- The node's fair share of the wants, and its part of the unwanted rest.
local function target_of(o, node, report, pool, fleet)
  local demand, capacity = report.demand, report.capacity
  local want = min(demand + floor(demand * report.headroom / 100) + 1, capacity)
  local all = want
  for i = 1, o.count do
    all = all + o.wanted[i]
  end
  if all > pool then
    return fair_share(o, node, want, pool)
  end
  local part = fleet > 0 and floor((pool - all) * capacity / fleet) or 0
  return min(want + part, capacity)
end

local function beat(key, body)
  local node, r = sub(body, 2, 9), {}
  r.capacity, r.in_flight, r.demand, r.held, r.lease, r.kept, r.headroom, r.growth =
    read('>I4I4I4I4I7I1I4I4', body, 10)
  local o = others_of(key, node, r)
  if not o.mine and o.count >= NODES_MAX then
    return 'f'
  end
  local fleet = o.capacity + r.capacity
  local pool = floor(fleet * r.kept / 100)
  local share = fleet > 0 and floor(pool * r.capacity / fleet) or 0
  local learning = now < o.learning
  local before, growing, wanted = 0, now, nil
  if not o.mine then
    wanted = learning and r.held or min(r.held, share)
  else
    before, growing = o.mine.grant, o.mine.growing
    local target = learning and before or target_of(o, node, r, pool, fleet)
    if target <= before then
      wanted, growing = target, now
    else
      -- Above 2^53 the product is not exact, but far above any target.
      local grown = floor(max(share, 1) * r.growth * (now - growing) / 100000000)
      grown = min(grown, target - before)
      if grown > 0 then
        growing = now
      end
      wanted = before + grown
    end
  end
  local fits = min(wanted, max(0, pool - o.granted))
  local grant = max(fits, min(max(r.in_flight, r.held), before))
  call('HSET', key, node, pack(ROW, r.capacity, r.in_flight, r.demand, grant, now + r.lease, growing))
  call('PEXPIRE', key, string.format('%.0f', math.ceil(r.lease / 1000) + slack))
  return pack('>c1I4I4I7I7I7', 'g', grant, fits, pool, fleet, o.used + r.in_flight)
end

local answers = { now_s, now_us }
for i = 2, #ARGV do
  answers[i + 1] = beat(KEYS[i - 1], ARGV[i])
end
return answers
