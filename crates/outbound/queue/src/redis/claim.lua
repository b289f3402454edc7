local lapses_max, records, cost_left, bytes_left, lease, consumer =
  tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
-- Ended delays and leases that one claim makes ready, and entries that it looks at; the next claim continues.
local DUE_MAX, LOOKS_MAX, BATCH = 10000, 20000, 1000

for _, seq in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, DUE_MAX)) do
  redis.call('ZREM', due, seq)
  make_ready(seq)
end
for _, seq in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, DUE_MAX)) do
  local lapses = redis.call('HINCRBY', record(seq), 'lapses', 1)
  if lapses >= lapses_max then
    move_to_dead_letters(seq, 'lapsed', '')
  else
    detach(seq, 'claimed', fields(seq, 'entry')[1])
    make_ready(seq)
  end
end

-- Groups that another program made are not ours.
local last = '0-0'
for _, found in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local named = {}
  for index = 1, #found, 2 do named[found[index]] = found[index + 1] end
  if named['name'] == group then last = named['last-delivered-id'] end
end

local taken, withheld_cost, withheld_bytes, looks = {}, -1, -1, 0
while #taken < records and withheld_cost < 0 and looks < LOOKS_MAX do
  local entries = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', math.min(records - #taken, BATCH))
  if #entries == 0 then break end
  for _, entry in ipairs(entries) do
    local seq = entry[2][2]
    local seen = fields(seq, 'state', 'entry', 'deadline', 'cost', 'bytes')
    looks = looks + 1
    last = entry[1]
    if seen[1] ~= 'ready' or seen[2] ~= entry[1] then
      redis.call('XDEL', stream, entry[1])
    elseif tonumber(seen[3]) <= now then
      move_to_dead_letters(seq, 'expired', '')
    elseif tonumber(seen[4]) > cost_left or tonumber(seen[5]) > bytes_left then
      withheld_cost, withheld_bytes = tonumber(seen[4]), tonumber(seen[5])
      break
    else
      cost_left = cost_left - tonumber(seen[4])
      bytes_left = bytes_left - tonumber(seen[5])
      taken[#taken + 1] = seq
    end
  end
end

local deliveries = {}
if #taken > 0 then
  -- Entries on the way that were not taken have been deleted, so that these are the next ones.
  redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', #taken, 'STREAMS', stream, '>')
  for index, seq in ipairs(taken) do
    redis.call('HINCRBY', record(seq), 'epoch', 1)
    redis.call('HSET', record(seq), 'state', 'claimed')
    redis.call('ZADD', leases, now + lease, seq)
    deliveries[index] = describe(seq, 'payload')
  end
end

local next_due = NEVER
if withheld_cost < 0 and #taken < records then
  for _, waiting in ipairs({due, leases}) do
    local first = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
    if first[2] then next_due = math.min(next_due, tonumber(first[2])) end
  end
end
return {now, withheld_cost, withheld_bytes, next_due, deliveries}
