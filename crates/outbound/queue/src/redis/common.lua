-- What all scripts of the queue share. Every key begins with KEYS[1], whose braces keep them on one node of a cluster.
-- Instants are microseconds since 1970; ARGV[1] is the present one, or 0 for the server's clock.
local base = KEYS[1]
local stream, group = base .. ':stream', 'tidegate'
local due, leases, live = base .. ':due', base .. ':leases', base .. ':live'
local dead, died, totals = base .. ':dead', base .. ':died', base .. ':totals'
local NEVER = 9007199254740991
local now = tonumber(ARGV[1])
if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

if redis.call('EXISTS', stream) == 0 then
  redis.call('XGROUP', 'CREATE', stream, group, '0', 'MKSTREAM')
end

local function record(seq) return base .. ':record:' .. seq end

local function fields(seq, ...) return redis.call('HMGET', record(seq), ...) end

-- Changes the totals of a class, or of 'dead'. Adding zero turns Lua's -0 into 0, which Redis can read.
local function count(class, direction, bytes, cost)
  redis.call('HINCRBY', totals, class .. ':records', direction)
  redis.call('HINCRBY', totals, class .. ':bytes', direction * bytes + 0)
  redis.call('HINCRBY', totals, class .. ':cost', direction * cost + 0)
end

-- Appends a record to the stream.
local function make_ready(seq)
  local entry = redis.call('XADD', stream, '*', 'n', seq)
  redis.call('HSET', record(seq), 'state', 'ready', 'entry', entry)
end

-- Takes a record out of the stream, the delayed ones and the claimed ones.
local function detach(seq, state, entry)
  if state == 'delayed' then
    redis.call('ZREM', due, seq)
  elseif state == 'claimed' then
    redis.call('ZREM', leases, seq)
  end
  if entry and entry ~= '' then
    redis.call('XACK', stream, group, entry)
    redis.call('XDEL', stream, entry)
  end
  redis.call('HSET', record(seq), 'entry', '')
end

-- Makes a live record a dead letter.
local function move_to_dead_letters(seq, reason, detail)
  local seen = fields(seq, 'state', 'entry', 'class', 'bytes', 'cost')
  detach(seq, seen[1], seen[2])
  count(seen[3], -1, seen[4], seen[5])
  count('dead', 1, seen[4], seen[5])
  redis.call('ZREM', live, seq)
  redis.call('ZADD', dead, seq, seq)
  redis.call('ZADD', died, now, seq)
  redis.call('HSET', record(seq), 'state', 'dead', 'reason', reason, 'detail', detail, 'died', now)
end

-- What the caller reads of a record.
local function describe(seq, payload)
  return {seq, fields(seq, 'epoch', 'tenant', 'cost', 'class', 'enqueued', 'deadline', 'attempts', 'lapses', payload)}
end
