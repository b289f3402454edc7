-- ARGV[2]: list, show, redrive or purge; ARGV[3]: the limit; ARGV[4]: the age of redriven records, or 0; ARGV[5]: all,
-- before or ids, with their arguments behind it.
local action, limit, age, selection = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local chosen = {}
if selection == 'all' then
  chosen = redis.call('ZRANGEBYSCORE', dead, '(' .. ARGV[6], '+inf', 'LIMIT', 0, limit)
elseif selection == 'before' then
  chosen = redis.call('ZRANGEBYSCORE', died, '-inf', '(' .. ARGV[6], 'LIMIT', 0, limit)
else
  local taken = {}
  for index = 6, #ARGV, 2 do
    local seq = ARGV[index]
    local seen = fields(seq, 'state', 'enqueued')
    if seen[1] == 'dead' and not taken[seq] and #chosen < limit
      and math.floor(tonumber(seen[2]) / 1000) == tonumber(ARGV[index + 1]) then
      taken[seq] = true
      chosen[#chosen + 1] = seq
    end
  end
end

local found = {}
for index, seq in ipairs(chosen) do
  if action == 'list' or action == 'show' then
    local payload = action == 'show' and 'payload' or 'no payload'
    local why = fields(seq, 'died', 'reason', 'detail', 'bytes')
    found[index] = {describe(seq, payload), why}
  else
    local seen = fields(seq, 'class', 'bytes', 'cost', 'enqueued')
    redis.call('ZREM', dead, seq)
    redis.call('ZREM', died, seq)
    count('dead', -1, seen[2], seen[3])
    if action == 'purge' then
      redis.call('DEL', record(seq))
    else
      local deadline = age > 0 and now + age or NEVER
      count(seen[1], 1, seen[2], seen[3])
      redis.call('ZADD', live, seen[4], seq)
      redis.call('HINCRBY', record(seq), 'epoch', 1)
      redis.call('HSET', record(seq), 'attempts', 0, 'lapses', 0, 'deadline', deadline)
      redis.call('HDEL', record(seq), 'reason', 'detail', 'died')
      make_ready(seq)
    end
  end
end
return {#chosen, found}
