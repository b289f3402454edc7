local dedup, dedup_ends = base .. ':dedup', base .. ':dedup_ends'
local window, age, records_max, bytes_max, length =
  tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local FIELDS, FIRST, SWEEP = 7, 7, 1000

-- The first record with the deduplication key, within this batch or before it.
local seen, batch_records, batch_bytes = {}, 0, 0
local originals = {}
for index = 0, length - 1 do
  local at = FIRST + index * FIELDS
  local key = ARGV[at + 3]
  local original = nil
  if key ~= '' then
    local ends = redis.call('ZSCORE', dedup_ends, key)
    if ends and tonumber(ends) > now then
      original = redis.call('HGET', dedup, key)
    else
      original = seen[key]
      seen[key] = seen[key] or index
    end
  end
  originals[index] = original
  if original == nil then
    batch_records = batch_records + 1
    batch_bytes = batch_bytes + #ARGV[at + 6]
  end
end

local records, bytes, cost = 0, 0, 0
for _, class in ipairs({'0', '1', '2', '3', 'dead'}) do
  local sums = redis.call('HMGET', totals, class .. ':records', class .. ':bytes', class .. ':cost')
  records = records + tonumber(sums[1] or 0)
  bytes = bytes + tonumber(sums[2] or 0)
  if class ~= 'dead' then cost = cost + tonumber(sums[3] or 0) end
end
if batch_records > 0 and (records + batch_records > records_max or bytes + batch_bytes > bytes_max) then
  local oldest = redis.call('ZRANGE', live, 0, 0, 'WITHSCORES')
  return {'full', records, bytes, cost, redis.call('ZCARD', dead), tonumber(oldest[2] or -1), batch_records, batch_bytes}
end

local ended = redis.call('ZRANGEBYSCORE', dedup_ends, '-inf', now, 'LIMIT', 0, SWEEP)
for _, key in ipairs(ended) do
  redis.call('ZREM', dedup_ends, key)
  redis.call('HDEL', dedup, key)
end

local outcomes, sequences = {}, {}
for index = 0, length - 1 do
  local at = FIRST + index * FIELDS
  local original = originals[index]
  if type(original) == 'string' then
    outcomes[index + 1] = {0, original}
  elseif original then
    outcomes[index + 1] = {0, sequences[original]}
  else
    local seq = redis.call('INCR', base .. ':sequence')
    local first = math.max(now, tonumber(ARGV[at + 4]))
    local deadline = tonumber(ARGV[at + 5])
    if age > 0 then deadline = math.min(deadline, first + age) end
    local payload = ARGV[at + 6]
    redis.call('HSET', record(seq), 'tenant', ARGV[at], 'cost', ARGV[at + 1], 'class', ARGV[at + 2], 'bytes', #payload,
      'enqueued', now, 'deadline', deadline, 'epoch', 0, 'attempts', 0, 'lapses', 0, 'payload', payload)
    redis.call('ZADD', live, now, seq)
    count(ARGV[at + 2], 1, #payload, ARGV[at + 1])
    if first > now then
      redis.call('ZADD', due, first, seq)
      redis.call('HSET', record(seq), 'state', 'delayed', 'entry', '')
    else
      make_ready(seq)
    end
    local name = string.format('%d:%.0f', seq, now)
    sequences[index] = name
    if ARGV[at + 3] ~= '' then
      redis.call('ZADD', dedup_ends, now + window, ARGV[at + 3])
      redis.call('HSET', dedup, ARGV[at + 3], name)
    end
    outcomes[index + 1] = {1, name}
  end
end
return {'stored', outcomes}
