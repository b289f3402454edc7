-- Descriptions of the nodes of a fleet. KEYS: the roster of each call, a hash. ARGV[1]: the instant in microseconds, or
-- empty for the server's clock. ARGV[1 + i]: call i. Returns {seconds, microseconds, one string for each call}.
--
-- A call writes or removes the description of its node, and reads all descriptions if it wants them. A description has
-- a lease: the node renews it, and the next reader removes it when it is over. The hash expires with its last lease.

local call, sub, read, pack = redis.call, string.sub, struct.unpack, struct.pack
local floor, max = math.floor, math.max

local NODES_MAX = 1024
local WRITE, READ = 1, 2
-- Milliseconds by which a roster outlives its last lease.
local slack = 2000

local now_s, now_us
if ARGV[1] == '' then
  local time = call('TIME')
  now_s, now_us = tonumber(time[1]), tonumber(time[2])
else
  local micros = tonumber(ARGV[1])
  now_us = micros % 1000000
  now_s = (micros - now_us) / 1000000
  slack = 3600000
end
local now = now_s * 1000 + floor(now_us / 1000)

-- The descriptions whose lease is not over.
local function live_nodes(key, lease)
  local rows, found = {}, call('HGETALL', key)
  for i = 1, #found, 2 do
    local id, raw = found[i], found[i + 1]
    local left = #id == 8 and #raw >= 7 and read('>I7', raw) - now or 0
    -- A lease that is longer than a new one: the clock was set back.
    if left <= 0 or left > 2 * lease then
      call('HDEL', key, id)
    else
      rows[#rows + 1] = pack('>I4', #raw - 7) .. sub(raw, 8)
    end
  end
  return table.concat(rows)
end

local function visit(key, body)
  local node = sub(body, 2, 9)
  local action, lease = read('>I1I4', body, 10)
  if action % 2 == WRITE then
    if call('HEXISTS', key, node) == 0 and call('HLEN', key) >= NODES_MAX then
      live_nodes(key, lease)
      if call('HLEN', key) >= NODES_MAX then
        return 'f'
      end
    end
    call('HSET', key, node, pack('>I7', now + lease) .. sub(body, 15))
    call('PEXPIRE', key, string.format('%.0f', max(lease, 1) + slack))
  elseif action == 0 then
    call('HDEL', key, node)
  end
  if action >= READ then
    return 'n' .. live_nodes(key, lease)
  end
  return 'n'
end

local answers = { now_s, now_us }
for i = 2, #ARGV do
  answers[i + 1] = visit(KEYS[i - 1], ARGV[i])
end
return answers
