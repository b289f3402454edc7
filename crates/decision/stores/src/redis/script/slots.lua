  -- Concurrency: an entry for each holder, by the instant at which its slots expire. An anonymous holder has an entry for
  -- each check. Slots with a lease and slots with the whole time to live are in the same set.
  local slots = { is_list = true }
  kinds[5] = slots

  local ANONYMOUS = string.rep('\0', 8)

  function slots.parse(body, at, soft, r)
    r.lasting_slot, r.room, r.cost, r.spare, r.holder, at = read('>I7I4I7I4c8', body, at)
    r.lives = r.lasting_slot
    if r.leased then
      r.lives, at = read('>I7', body, at)
    end
    if soft then
      r.hard, at = read('>I4', body, at)
    end
    return at
  end

  local function count_of(list, found)
    local count = list.marks > 1 and call('ZSCORE', list.key, '#' .. found.member)
    return count and -1 - tonumber(count) or 1
  end

  function slots.open(key, r)
    local latest = now + r.lasting_slot
    local list = open_list(key, now, count_of)
    if list.last and list.last.score > latest then
      -- No slot expires later than one that is taken now for the whole time to live.
      local late = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', latest), '+inf')
      for i = 1, #late do
        call('ZADD', key, latest, late[i])
      end
      list = open_list(key, now, count_of)
    end
    list.held = {}
    return list
  end

  -- The key expires with its last slot.
  local function lasts_until(list, expires)
    if not list.last or list.last.score < expires then
      list.last = { score = expires }
    end
  end

  slots.fits = log.fits
  slots.most = log.most

  function slots.charge(list, r, amount)
    local cost = amount or r.cost
    if cost == 0 then
      return
    end
    local member = r.holder
    if member == ANONYMOUS then
      local times = 0
      repeat
        member, times = ANONYMOUS .. pack('>I7I3', now, times), times + 1
      until not list.held[member] and (list.foreign or not call('ZSCORE', list.key, member))
    elseif not list.held[member] and not list.foreign then
      local until_when = tonumber(call('ZSCORE', list.key, member) or 0)
      if until_when > now then
        list.held[member] = { count = count_of(list, { member = member }), expires = until_when }
        list.moved = true
      end
    end
    local held = list.held[member] or { count = 0, expires = 0 }
    held.count = math.min(COUNT_MAX, held.count + cost)
    held.expires = math.max(held.expires, now + r.lives)
    list.held[member] = held
    list.total = math.min(COUNT_MAX, list.total + cost)
    lasts_until(list, held.expires)
  end

  local function release(list, member, count, left)
    local back = math.min(left, count)
    if back == count then
      call('ZREM', list.key, member, '#' .. member)
    elseif count - back == 1 then
      call('ZREM', list.key, '#' .. member)
    else
      call('ZADD', list.key, -1 - (count - back), '#' .. member)
    end
    list.total = list.total - back
    return left - back
  end

  -- Written immediately: a refund is never reverted.
  function slots.refund(list, r)
    if list.foreign then
      return
    end
    if r.holder ~= ANONYMOUS then
      local until_when = tonumber(call('ZSCORE', list.key, r.holder) or 0)
      if until_when > now then
        release(list, r.holder, count_of(list, { member = r.holder }), r.cost)
      end
    else
      local left, position = r.cost, list.first
      local first = entry(list, position)
      while first and left > 0 do
        left = release(list, first.member, count_of(list, first), left)
        position = position + 1
        first = entry(list, position)
      end
    end
    local newest = list.total > 0 and call('ZREVRANGE', list.key, 0, 0, 'WITHSCORES')
    list.last = newest and { score = tonumber(newest[2]) } or nil
    slots.close(list)
  end

  -- Extends the expiry of slots that are held; never shortens it.
  function slots.renew(list, r)
    local until_when = tonumber(not list.foreign and call('ZSCORE', list.key, r.holder) or 0)
    if until_when <= now then
      return false
    end
    local expires = now + r.lives
    if until_when < expires then
      call('ZADD', list.key, expires, r.holder)
      lasts_until(list, expires)
      slots.close(list)
    end
    return true
  end

  function slots.close(list)
    for position = 1, list.first - 1 do
      if list.marks > 1 then
        call('ZREM', list.key, '#' .. entry(list, position).member)
      end
    end
    -- By score, because ranks changed when marks were removed.
    if list.first > 1 then
      call('ZREMRANGEBYSCORE', list.key, 0, now)
      list.first = 1
    end
    close_list(list, 0)
    for member, held in pairs(list.held) do
      call('ZADD', list.key, held.expires, member)
      if held.count > 1 then
        call('ZADD', list.key, -1 - held.count, '#' .. member)
      end
    end
  end
