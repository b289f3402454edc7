local outcomes = {}
for index = 1, tonumber(ARGV[2]) do
  local at = 3 + (index - 1) * 6
  local seq, epoch, millis, kind, first, second =
    ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  local seen = fields(seq, 'epoch', 'state', 'entry', 'enqueued', 'class', 'bytes', 'cost')
  local is_valid = seen[1] == epoch and seen[2] ~= 'dead'
    and math.floor(tonumber(seen[4]) / 1000) == tonumber(millis)
  outcomes[index] = is_valid and 1 or 0
  if not is_valid then
    -- Settled, removed or claimed again: nothing to do.
  elseif kind == 'ack' then
    detach(seq, seen[2], seen[3])
    count(seen[5], -1, seen[6], seen[7])
    redis.call('ZREM', live, seq)
    redis.call('DEL', record(seq))
  elseif kind == 'nack' then
    detach(seq, seen[2], seen[3])
    redis.call('HINCRBY', record(seq), 'epoch', 1)
    redis.call('HINCRBY', record(seq), 'attempts', second)
    if tonumber(first) > now then
      redis.call('ZADD', due, first, seq)
      redis.call('HSET', record(seq), 'state', 'delayed')
    else
      make_ready(seq)
    end
  elseif kind == 'extend' then
    if seen[2] ~= 'claimed' then
      detach(seq, seen[2], seen[3])
      redis.call('HSET', record(seq), 'state', 'claimed')
    end
    redis.call('ZADD', leases, now + tonumber(first), seq)
  else
    move_to_dead_letters(seq, 'rejected', first)
  end
end
return outcomes
