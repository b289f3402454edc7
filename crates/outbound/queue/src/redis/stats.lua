local oldest = redis.call('ZRANGE', live, 0, 0, 'WITHSCORES')
local sums = {}
for _, class in ipairs({'0', '1', '2', '3', 'dead'}) do
  for _, sum in ipairs(redis.call('HMGET', totals, class .. ':records', class .. ':bytes', class .. ':cost')) do
    sums[#sums + 1] = tonumber(sum or 0)
  end
end
return {redis.call('ZCARD', leases), tonumber(oldest[2] or -1), sums}
