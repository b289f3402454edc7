  -- Sliding log: an entry for each instant, with the units used at it.
  local log = { is_list = true }
  kinds[4] = log

  function log.parse(body, at, soft, r)
    r.period, r.lag, r.limit, r.room, r.cost, r.spare, at = read('>I7I3I4I4I7I4', body, at)
    if soft then
      r.hard, at = read('>I4', body, at)
    end
    return at
  end

  local function cost_of(_, found)
    return (read('>I7', found.member, 8))
  end

  local function member_of(at, cost)
    return pack('>I7I7', at, cost)
  end

  -- Moves entries after now to now.
  local function bring_back(key)
    local ahead = 0
    local found = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', now), '+inf')
    for i = 1, #found do
      ahead = ahead + cost_of(nil, { member = found[i] })
    end
    call('ZREMRANGEBYSCORE', key, '(' .. string.format('%.0f', now), '+inf')
    local same = call('ZRANGEBYSCORE', key, now, now)[1]
    if same then
      call('ZREM', key, same)
      ahead = ahead + cost_of(nil, { member = same })
    end
    call('ZADD', key, now, member_of(now, ahead))
  end

  function log.open(key, r)
    local list = open_list(key, now - r.period, cost_of)
    if list.last and list.last.score > now + r.lag then
      bring_back(key)
      list = open_list(key, now - r.period, cost_of)
    end
    if list.last then
      list.last.cost = cost_of(nil, list.last)
    end
    list.lasts = r.period
    return list
  end

  function log.fits(list, r, hard)
    return list.total < (hard and r.hard or r.room)
  end

  function log.most(list, r, hard)
    local room = hard and r.hard or r.room
    return math.max(0, math.min(r.cost, room - 1 - list.total))
  end

  function log.charge(list, r, amount)
    local cost = math.min(amount or r.cost, r.limit)
    if cost == 0 then
      return
    end
    local last = list.last
    if last and last.score >= now then
      list.replaced = list.replaced or last.member
      list.last = { score = last.score, cost = math.min(COUNT_MAX, last.cost + cost) }
    else
      list.last = { score = now, cost = cost }
    end
    list.total = math.min(COUNT_MAX, list.total + cost)
    local first = entry(list, list.first)
    while first and first.member ~= list.replaced do
      local left = list.total - cost_of(nil, first)
      if left < r.limit then
        break
      end
      list.total, list.first = left, list.first + 1
      first = entry(list, list.first)
    end
  end

  -- Written immediately: a refund is never reverted.
  function log.refund(list, r)
    local left = math.min(r.cost, list.total)
    list.total = list.total - left
    while left > 0 do
      local newest = call('ZREVRANGE', list.key, 0, 0, 'WITHSCORES')
      local cost, at = cost_of(nil, { member = newest[1] }), tonumber(newest[2])
      call('ZREM', list.key, newest[1])
      if cost > left then
        call('ZADD', list.key, at, member_of(at, cost - left))
      end
      left = left - math.min(left, cost)
    end
    local newest = list.total > 0 and call('ZREVRANGE', list.key, 0, 0, 'WITHSCORES')
    list.last = newest and { score = tonumber(newest[2]) } or nil
    close_list(list, r.period)
  end

  function log.close(list)
    if list.replaced then
      call('ZREM', list.key, list.replaced)
    end
    close_list(list, list.lasts)
    if list.last and not list.last.member then
      call('ZADD', list.key, list.last.score, member_of(list.last.score, list.last.cost))
    end
  end
