-- One call decides the parcels of many requests, one after the other, at one
-- instant. KEYS: the keys of all parcels, in order. ARGV[1]: the instant in
-- microseconds, or nothing for the server's clock. ARGV[1 + i]: parcel i.
-- Answers {seconds, microseconds, one string for each parcel}.
--
-- Numbers are doubles, so every number here is a whole one below 2^53: time is
-- counted in microseconds, and in seconds with a part of 2^-14 ns ticks where
-- microseconds are too coarse (buckets).

local call, byte, sub, pack, read = redis.call, string.byte, string.sub, struct.pack, struct.unpack
local KEYS, ARGV = KEYS, ARGV

local COUNT_MAX = 9007199254740991
local TICKS = 16384000000000 -- in a second
local TICKS_IN_MICRO = 16384000
local SCALE = 262144 -- 18 bits
local LOW = 1073741824 -- 30 bits

-- Seconds that a key outlives its state.
local slack = 2
local now_s, now_us
if ARGV[1] == '' then
  local time = call('TIME')
  now_s, now_us = tonumber(time[1]), tonumber(time[2])
else
  -- A clock turned by hand stands still while keys expire by the real one.
  local micros = tonumber(ARGV[1])
  now_us = micros % 1000000
  now_s = (micros - now_us) / 1000000
  slack = 3600
end
if now_s > 9007199253 then
  now_s, now_us = 9007199253, 0
end
local now = now_s * 1000000 + now_us -- in microseconds
local now_t = now_us * TICKS_IN_MICRO -- ticks within the second

-- What each string key holds, '' for nothing, as the parcels before left it;
-- and how many seconds those that were changed have to live, or false where
-- they expire when they should already. Written once, at the end, so that a
-- busy key costs one write for each call.
local value, lives = {}, {}
for first = 1, #KEYS, 4000 do
  local last = math.min(first + 3999, #KEYS)
  local found = call('MGET', unpack(KEYS, first, last))
  for i = first, last do
    value[KEYS[i]] = found[i - first + 1] or ''
  end
end

-- The key of a bucket lives until the stretch of time ends in which its state
-- ends. So most charges leave its expiry as it is and overwrite its twelve
-- bytes, at two thirds of what setting it costs. A stretch is four to eight
-- times as long as one unit takes, within 16 s and 17 min. It follows from the
-- scale alone: whoever finds a state knows when its key expires, whichever
-- limit wrote it.
local function stretch_of(scale)
  return 2 ^ math.min(math.max((scale - scale % 2048) / 2048 - 31, 4), 10)
end

-- Every other kind of parcel than one check of one bucket; made when needed.
local general
local function make_general()
  local VERB = { read = 0, all = 1, always = 2, take = 3, refund = 4, reset = 5, charge = 6, renew = 7, none = 8, swap = 9 }
  local ALWAYS = 72057594037927935 -- a room that admits whatever is used

  -- Each kind of limit is a table of
  --   parse(body, at, soft, r) -> where the next record begins
  --   open(raw, r)             -> state settled at this instant; nil when only the caller can settle it
  --   fits(state, r, hard)     -> whether the cost fits, in the stretched limit or in the hard one
  --   most(state, r, hard)     -> how much fits, up to the cost
  --   charge(state, r, amount) -- the record's whole cost when no amount is given
  --   refund(state, r)
  --   close(state)             -> raw, the instant at which it stops mattering
  local kinds = {}
  -- Token bucket and leaky bucket. The state is the instant at which nothing is
  -- owed: seconds and ticks, beside the 18 bits that name the pace it was
  -- written under.
  local bucket = {}
  kinds[1] = bucket

  function bucket.parse(body, at, soft, r)
    r.scale, r.grain, r.longest_s, r.longest_t, r.room_s, r.room_t, r.cost_s, r.cost_t, r.cost, at =
      read('>I3I2I5I6I5I6I5I6I7', body, at)
    if soft then
      r.hard_s, r.hard_t, at = read('>I5I6', body, at)
    end
    if r.verb == VERB.charge then
      r.full_s, r.full_t, at = read('>I5I6', body, at)
    end
    return at
  end

  function bucket.open(raw, r)
    if raw == '' then
      return { s = now_s, t = now_t, scale = r.scale }
    end
    if #raw ~= 12 then
      return nil
    end
    local x, y = read('>I6I6', raw)
    local scale, high = y % SCALE, x % 16384
    local s, t = (x - high) / 16384, high * LOW + (y - scale) / SCALE
    if scale ~= r.scale then
      return nil
    end
    t = t - t % r.grain
    if s < now_s or (s == now_s and t < now_t) then
      return { s = now_s, t = now_t, scale = scale }
    end
    local state = { s = s, t = t, scale = scale }
    if not bucket.owes_less(state, r.longest_s, r.longest_t) then
      return nil
    end
    return state
  end

  -- Whether less is owed than this much time.
  function bucket.owes_less(state, span_s, span_t)
    local s, t = state.s - now_s, state.t - now_t
    if t < 0 then
      s, t = s - 1, t + TICKS
    end
    return s < span_s or (s == span_s and t < span_t)
  end

  function bucket.fits(state, r, hard)
    if hard then
      return bucket.owes_less(state, r.hard_s, r.hard_t)
    end
    return bucket.owes_less(state, r.room_s, r.room_t)
  end

  local function owing(state, s, t)
    s, t = state.s + s, state.t + t
    if t >= TICKS then
      s, t = s + 1, t - TICKS
    end
    return { s = s, t = t, scale = state.scale }
  end

  -- By doubling the time of one unit, then by halves: exact without a division.
  function bucket.most(state, r, hard)
    local spans, s, t, units = {}, r.cost_s, r.cost_t, 1
    while units <= r.cost do
      if not bucket.fits(owing(state, s, t), r, hard) then
        break
      end
      spans[#spans + 1] = { s, t, units }
      s, t, units = s * 2, t * 2, units * 2
      if t >= TICKS then
        s, t = s + 1, t - TICKS
      end
    end
    local most, tried = 0, state
    for i = #spans, 1, -1 do
      local span = spans[i]
      local more = owing(tried, span[1], span[2])
      if most + span[3] <= r.cost and bucket.fits(more, r, hard) then
        most, tried = most + span[3], more
      end
    end
    return most, tried
  end

  function bucket.charge(state, r, amount)
    local after
    if amount then
      local _
      _, after = bucket.most(state, { cost_s = r.cost_s, cost_t = r.cost_t, cost = amount, room_s = 1099511627775, room_t = 0 })
    else
      after = owing(state, r.cost_s, r.cost_t)
    end
    if r.full_s and not bucket.owes_less(after, r.longest_s, r.longest_t) then
      -- More than is believed counts as all that there is.
      after = owing({ s = now_s, t = now_t }, r.full_s, r.full_t)
    end
    state.s, state.t = after.s, after.t
  end

  function bucket.refund(state, r)
    local s, t = state.s - r.cost_s, state.t - r.cost_t
    if t < 0 then
      s, t = s - 1, t + TICKS
    end
    if s < now_s or (s == now_s and t < now_t) then
      s, t = now_s, now_t
    end
    state.s, state.t = s, t
  end

  function bucket.close(state)
    local low, stretch = state.t % LOW, stretch_of(state.scale)
    local raw = pack('>I6I6', state.s * 16384 + (state.t - low) / LOW, low * SCALE + state.scale)
    return raw, (state.s - state.s % stretch + stretch) * 1000000
  end
  -- Fixed window: when it ends, and what was used in it.
  local window = {}
  kinds[2] = window

  function window.parse(body, at, soft, r)
    r.period, at = read('>I7', body, at)
    if r.period == 0 then
      -- A window of the calendar, as the caller expects it.
      r.begins, r.ends, r.longest, at = read('>I7I7I7', body, at)
    else
      r.lag, at = read('>I3', body, at)
    end
    r.room, r.cost, at = read('>I7I7', body, at)
    if soft then
      r.hard, at = read('>I7', body, at)
    end
    return at
  end

  -- How long ago the last multiple of the period was. The quotient of two
  -- doubles can be rounded up to a whole number that it is just below.
  local function passed(period)
    local since = now % period
    if since < 0 then
      since = since + period
    end
    return since
  end

  function window.open(raw, r)
    local ends
    if r.period == 0 then
      if now < r.begins or now >= r.ends then
        return nil
      end
      ends = r.ends
    else
      ends = now - passed(r.period) + r.period
    end
    if raw == '' then
      return { ends = ends, count = 0 }
    end
    if #raw ~= 15 or byte(raw) ~= 87 then
      return nil
    end
    local known, count = read('>I7I7', raw, 2)
    if known <= now then
      return { ends = ends, count = 0 }
    end
    if r.period == 0 then
      if known - now <= r.longest then
        ends = known
      end
    elseif known - ends == r.period and ends - now <= r.lag then
      -- A late reading of the clock.
      ends = known
    end
    return { ends = ends, count = count }
  end

  function window.fits(state, r, hard)
    return state.count < (hard and r.hard or r.room)
  end

  -- The rooms are one more than the limits here.
  function window.most(state, r, hard)
    local room = hard and r.hard or r.room
    return math.max(0, math.min(r.cost, room - 1 - state.count))
  end

  function window.charge(state, r, amount)
    state.count = math.min(COUNT_MAX, state.count + (amount or r.cost))
  end

  function window.refund(state, r)
    state.count = math.max(0, state.count - r.cost)
  end

  function window.close(state)
    return pack('>c1I7I7', 'W', state.ends, state.count), state.ends
  end
  -- Sliding window: when the newest slice began, and a count for each slice,
  -- oldest first.
  local slices = {}
  kinds[3] = slices

  function slices.parse(body, at, soft, r)
    r.slice, r.lag, r.slices, r.room, r.cost, at = read('>I7I3I1I7I7', body, at)
    if soft then
      r.hard, at = read('>I7', body, at)
    end
    return at
  end

  function slices.open(raw, r)
    local begun = now - passed(r.slice)
    local counts = {}
    if raw == '' then
      for i = 1, r.slices + 1 do
        counts[i] = 0
      end
      return { begun = begun, slice = r.slice, counts = counts }
    end
    if byte(raw) ~= 76 or #raw < 16 then
      return nil
    end
    local known, slice, width = read('>I7I7I1', raw, 2)
    if slice ~= r.slice or #raw ~= 16 + width * (r.slices + 1) then
      return nil
    end
    counts = { read('>' .. string.rep('I' .. width, r.slices + 1), raw, 17) }
    counts[r.slices + 2] = nil
    if known > begun then
      if known > now + r.lag then
        return nil
      end
      return { begun = known, slice = slice, counts = counts }
    end
    local gone = (begun - known) / slice
    if gone > 0 then
      for i = 1, r.slices + 1 do
        counts[i] = counts[i + gone] or 0
      end
    end
    return { begun = begun, slice = slice, counts = counts }
  end

  -- a * b in limbs of 18 bits, lowest first.
  local function product(a, b)
    local limbs, one, other = { 0, 0, 0, 0, 0, 0 }, {}, {}
    for i = 1, 3 do
      one[i], other[i] = a % SCALE, b % SCALE
      a, b = (a - one[i]) / SCALE, (b - other[i]) / SCALE
    end
    for i = 1, 3 do
      for j = 1, 3 do
        limbs[i + j - 1] = limbs[i + j - 1] + one[i] * other[j]
      end
    end
    for i = 1, 5 do
      local low = limbs[i] % SCALE
      limbs[i + 1], limbs[i] = limbs[i + 1] + (limbs[i] - low) / SCALE, low
    end
    return limbs
  end

  -- Whether the weighted sum is at most `room`.
  local function within(state, room)
    local counts, inside = state.counts, 0
    for i = 2, #counts do
      inside = inside + counts[i]
    end
    if inside > room then
      return false
    end
    local slice, oldest = state.slice, counts[1]
    local left = slice - math.max(0, math.min(now - state.begun, slice))
    room = room - inside
    -- Products of doubles are right to one part in 2^52.
    local part, whole = oldest * left, room * slice
    if part < whole * 0.999999999999 then
      return true
    elseif part > whole * 1.000000000001 then
      return false
    end
    part, whole = product(oldest, left), product(room, slice)
    for i = 6, 1, -1 do
      if part[i] ~= whole[i] then
        return part[i] < whole[i]
      end
    end
    return true
  end

  local function fits_in(state, room)
    return room == ALWAYS or (room > 0 and within(state, room - 1))
  end

  function slices.fits(state, r, hard)
    return fits_in(state, hard and r.hard or r.room)
  end

  -- The rooms are one more than the limits here. By halves: exact without a division.
  function slices.most(state, r, hard)
    local room = hard and r.hard or r.room
    local most, least = math.min(r.cost, room - 1), 0
    while least < most do
      local middle = least + math.ceil((most - least) / 2)
      if fits_in(state, room - middle) then
        least = middle
      else
        most = middle - 1
      end
    end
    return least
  end

  function slices.charge(state, r, amount)
    local counts = state.counts
    counts[#counts] = math.min(COUNT_MAX, counts[#counts] + (amount or r.cost))
  end

  function slices.refund(state, r)
    local counts, left = state.counts, r.cost
    for i = #counts, 1, -1 do
      local back = math.min(left, counts[i])
      counts[i], left = counts[i] - back, left - back
    end
  end

  function slices.close(state)
    local counts, most, newest = state.counts, 0, 0
    for i = 1, #counts do
      most = math.max(most, counts[i])
      if counts[i] > 0 then
        newest = i
      end
    end
    local width = most < 256 and 1 or most < 65536 and 2 or most < 4294967296 and 4 or 7
    local raw = pack('>c1I7I7I1' .. string.rep('I' .. width, #counts), 'L', state.begun, state.slice, width, unpack(counts))
    return raw, state.begun + state.slice * newest
  end
  -- What sliding logs and slots have in common: a sorted set of entries by
  -- instant. What is not an entry has a negative score: `t`, the sum of the
  -- entries; `a`, the allowance of a soft limit; `#...`, how many slots a
  -- holder has when it is not one.
  local CHUNK = 12
  local lists = {}

  -- Takes what ZRANGE found apart.
  local function take_in(list, found)
    for i = 1, #found, 2 do
      local member, score = found[i], tonumber(found[i + 1])
      if score >= 0 then
        list.loaded[#list.loaded + 1] = { member = member, score = score }
      else
        list.marks = list.marks + 1
        if member == 't' then
          list.total = -1 - score
        elseif #member == 15 and byte(member) == 97 then
          list.allowance = member
          list.closes, list.rests = read('>I7I7', member, 2)
        end
      end
    end
  end

  -- The entry at a position, loaded when it is needed.
  local function entry(list, position)
    while position > #list.loaded and not list.complete do
      local from = list.marks + #list.loaded
      local found = call('ZRANGE', list.key, from, from + 63, 'WITHSCORES')
      list.complete = #found < 128
      take_in(list, found)
    end
    return list.loaded[position]
  end

  -- Opens the list of a key without what is scored at `gone` or below.
  local function open_list(key, gone, amount)
    local list = { key = key, total = 0, marks = 0, loaded = {}, first = 1, closes = 0, rests = 0, amount = amount }
    local found = value[key] == '' and redis.pcall('ZRANGE', key, 0, CHUNK - 1, 'WITHSCORES') or { err = 'a string' }
    if found.err then
      -- Another algorithm's state says nothing about this limit.
      list.foreign, list.complete = true, true
      return list
    end
    list.complete = #found < CHUNK * 2
    take_in(list, found)
    if list.marks == CHUNK then
      list.marks = call('ZCOUNT', key, '-inf', '(0')
      list.total = -1 - tonumber(call('ZSCORE', key, 't') or -1)
    end
    local first = entry(list, 1)
    while first and first.score <= gone do
      list.total = list.total - amount(list, first)
      list.first = list.first + 1
      first = entry(list, list.first)
    end
    if not first then
      list.total = 0
    elseif list.complete then
      list.last = list.loaded[#list.loaded]
    else
      local last = call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
      list.last = { member = last[1], score = tonumber(last[2]) }
    end
    list.was = { total = list.total, first = list.first, last = list.last, closes = list.closes, rests = list.rests }
    return list
  end

  -- What the caller needs to know of a list as it was opened: the oldest
  -- entries up to so much, and the newest.
  local function summary(list, upto, holders)
    local was = list.was or { total = 0, first = 1, closes = 0, rests = 0 }
    local parts, position, covered = { '' }, was.first, 0
    local first = covered < upto and entry(list, position)
    while first do
      local amount = list.amount(list, first)
      if holders then
        parts[#parts + 1] = pack('>I7c8I7', first.score, sub(first.member, 1, 8), amount)
      else
        parts[#parts + 1] = pack('>I7I7', first.score, amount)
      end
      covered, position = covered + amount, position + 1
      first = covered < upto and entry(list, position)
    end
    parts[1] = pack('>I7I7I7I7', was.total, was.last and was.last.score or 0, was.closes, was.rests)
    return table.concat(parts)
  end

  -- Writes what all lists have in common; true when nothing is left of it.
  local function close_list(list, lasts)
    if list.foreign then
      call('DEL', list.key)
      value[list.key], lives[list.key] = '', nil
    elseif list.first > 1 then
      call('ZREMRANGEBYRANK', list.key, list.marks, list.marks + list.first - 2)
    end
    local allowance = list.closes > 0 and pack('>c1I7I7', 'a', list.closes, list.rests) or nil
    if allowance ~= list.allowance then
      if list.allowance then
        call('ZREM', list.key, list.allowance)
      end
      if allowance then
        call('ZADD', list.key, -1e18, allowance)
      end
    end
    if list.total == 0 and not allowance then
      call('DEL', list.key)
      return
    end
    call('ZADD', list.key, -1 - list.total, 't')
    local idle = math.max(list.last and list.last.score + lasts or 0, list.rests)
    local left = math.max(0, idle - now) / 1000000
    call('EXPIRE', list.key, left - left % 1 + slack)
  end
  -- Sliding log: an entry for each instant, with what was used at it.
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

  -- What lies after now is moved to now.
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

  -- Written at once: nothing of a refund is taken back.
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
  -- Concurrency: an entry for each holder, by the instant at which its slots
  -- come free by themselves. A caller without a name has an entry for each time.
  -- Slots on a lease and slots for the whole time to live lie side by side.
  local slots = { is_list = true }
  kinds[5] = slots

  local NOBODY = string.rep('\0', 8)

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
      -- None outlives one that is taken now for the whole time to live.
      local late = call('ZRANGEBYSCORE', key, '(' .. string.format('%.0f', latest), '+inf')
      for i = 1, #late do
        call('ZADD', key, latest, late[i])
      end
      list = open_list(key, now, count_of)
    end
    list.held = {}
    return list
  end

  -- The key lives until its last slot has expired, whoever has that.
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
    if member == NOBODY then
      local times = 0
      repeat
        member, times = NOBODY .. pack('>I7I3', now, times), times + 1
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

  local function give_back(list, member, count, left)
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

  -- Written at once: nothing of a refund is taken back.
  function slots.refund(list, r)
    if list.foreign then
      return
    end
    if r.holder ~= NOBODY then
      local until_when = tonumber(call('ZSCORE', list.key, r.holder) or 0)
      if until_when > now then
        give_back(list, r.holder, count_of(list, { member = r.holder }), r.cost)
      end
    else
      local left, position = r.cost, list.first
      local first = entry(list, position)
      while first and left > 0 do
        left = give_back(list, first.member, count_of(list, first), left)
        position = position + 1
        first = entry(list, position)
      end
    end
    local newest = list.total > 0 and call('ZREVRANGE', list.key, 0, 0, 'WITHSCORES')
    list.last = newest and { score = tonumber(newest[2]) } or nil
    slots.close(list)
  end

  -- Only what is held, and only forward.
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
    -- By score: ranks have changed when marks went.
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
  -- Takes a parcel apart.
  local parsed = {}
  local function parse(body)
    local p = { checks = {} }
    local count, verb, at = read('>I1I1', body)
    if count == 255 then
      count, verb, at = read('>I2I1', body, 2)
    end
    p.settled = {}
    if verb >= 128 then
      verb = verb - 128
      local many
      many, at = read('>I1', body, at)
      for i = 1, many do
        local settled = {}
        settled.index, settled.was, settled.becomes, settled.lives, at = read('>I2I2c0I2c0I4', body, at)
        p.settled[i] = settled
      end
    end
    p.verb, p.count = verb, count
    for i = 1, verb == VERB.swap and 0 or count do
      local r = { verb = verb }
      local kind, flags
      kind, flags, at = read('>I1I1', body, at)
      r.soft, r.leased, r.counts, r.role = kind >= 16, flags >= 8, flags % 8 >= 4, flags % 4
      r.kind = kinds[kind % 16]
      at = r.kind.parse(body, at, r.soft, r)
      if r.soft then
        r.lasting, r.rest, at = read('>I7I7', body, at)
      end
      p.checks[i] = r
    end
    parsed[body] = p
    return p
  end

  -- The state of a key settled at this instant; nil when only the caller can settle it.
  local function open(key, r)
    local state, closes, rests
    if r.kind.is_list then
      state = r.kind.open(key, r)
      closes, rests = state.closes, state.rests
    else
      local raw = value[key]
      closes, rests = 0, 0
      if r.soft and raw ~= '' then
        if byte(raw) ~= 83 or #raw < 15 then
          return nil
        end
        closes, rests = read('>I7I7', raw, 2)
        raw = sub(raw, 16)
      end
      state = r.kind.open(raw, r)
      if not state then
        return nil
      end
    end
    state.closes, state.rests = 0, 0
    if r.soft and closes > 0 then
      -- A clock that stepped back leaves nothing open for longer than a new one.
      state.closes = math.min(closes, now + r.lasting)
      state.rests = math.min(rests, now + r.lasting + r.rest)
    end
    return state
  end

  local function close(key, r, state)
    if r.kind.is_list then
      return r.kind.close(state)
    end
    local raw, idle = r.kind.close(state)
    if r.soft then
      raw = pack('>c1I7I7', 'S', state.closes, state.rests) .. raw
      idle = math.max(idle, state.rests)
    end
    local left = math.max(0, idle - now) / 1000000
    value[key], lives[key] = raw, left - left % 1 + slack
  end

  local function may_stretch(state)
    return state.closes == 0 or now < state.closes or now >= state.rests
  end

  -- Whether the cost fits, and whether only in the allowance.
  local function admits(state, r)
    if not r.soft then
      return r.kind.fits(state, r, false), false
    end
    if not may_stretch(state) then
      return r.kind.fits(state, r, true), false
    end
    local fits = r.kind.fits(state, r, false)
    return fits, fits and not r.kind.fits(state, r, true)
  end

  local function charge(state, r, stretched, amount)
    r.kind.charge(state, r, amount)
    if stretched and not (state.closes > 0 and now < state.closes) then
      state.closes = now + r.lasting
      state.rests = state.closes + r.rest
    end
    state.changed = state.changed or amount ~= 0 and (amount or r.cost > 0)
  end

  local function take(state, r)
    local hard = r.soft and not may_stretch(state)
    local most = r.kind.most(state, r, hard)
    if most > 0 then
      charge(state, r, r.soft and not hard and r.kind.most(state, r, true) < most, most)
    end
    return most > 0 or r.cost == 0
  end

  -- Whether two records of one key settle its state alike.
  local function alike(one, other)
    return one.kind == other.kind and one.soft == other.soft and one.scale == other.scale
      and one.grain == other.grain and one.longest == other.longest and one.longest_s == other.longest_s and one.longest_t == other.longest_t and one.period == other.period and one.ends == other.ends
      and one.slice == other.slice and one.slices == other.slices and one.lasting == other.lasting
      and one.rest == other.rest and one.lasting_slot == other.lasting_slot
  end

  local function told(status, told_of)
    for i = 1, #told_of do
      told_of[i] = pack('>I4', #told_of[i]) .. told_of[i]
    end
    return status .. table.concat(told_of)
  end

  local function as_they_are(status, base, count)
    local raws = {}
    for i = 1, count do
      raws[i] = value[KEYS[base + i]]
    end
    return told(status, raws)
  end

  -- Puts what the caller settled or decided.
  local function put(key, settled)
    local left = settled.lives
    if #settled.becomes == 12 then
      local x, y = read('>I6I6', settled.becomes)
      local s, stretch = (x - x % 16384) / 16384, stretch_of(y % SCALE)
      left = math.max(left, s - s % stretch + stretch - now_s)
    end
    value[key], lives[key] = settled.becomes, left + slack
  end

  -- If all keys hold what is expected, they hold something else from now on.
  local function swap(p, base)
    for _, settled in ipairs(p.settled) do
      if value[KEYS[base + settled.index]] ~= settled.was then
        return as_they_are('s', base, p.count)
      end
    end
    for _, settled in ipairs(p.settled) do
      put(KEYS[base + settled.index], settled)
    end
    return 'c'
  end

  -- Opens every key of a parcel once: the states by key, or nil and the answer
  -- that says which of them the caller has to settle.
  local function open_all(p, base)
    local states, first, stale, odd = {}, {}, nil, false
    for i, r in ipairs(p.checks) do
      local key = KEYS[base + i]
      if r.kind.is_list and (p.verb == VERB.refund or p.verb == VERB.renew) then
        -- Opened in its turn: each sees what the one before has written.
        first[key] = r
      elseif not first[key] then
        states[key], first[key] = open(key, r), r
        if not states[key] then
          stale = stale or {}
          stale[i] = value[key]
        end
      elseif not alike(first[key], r) then
        odd = true
      end
    end
    if stale then
      for i = 1, p.count do
        stale[i] = stale[i] or ''
      end
      return nil, told('s', stale)
    elseif odd then
      return nil, as_they_are('o', base, p.count)
    end
    return states
  end

  local function give_back(p, base, states)
    local parts = {}
    for i, r in ipairs(p.checks) do
      local key = KEYS[base + i]
      if r.kind.is_list then
        local list = open(key, r)
        if p.verb == VERB.refund and r.cost > 0 and list.total > 0 then
          r.kind.refund(list, r)
        elseif p.verb == VERB.renew then
          parts[i] = slots.renew(list, r) and '1' or '0'
        end
        list.was = { total = list.total, first = 1, last = list.last, closes = list.closes, rests = list.rests }
        parts[i] = parts[i] or summary(list, 0)
      else
        parts[i] = value[key]
        r.kind.refund(states[key], r)
        if r.cost > 0 then
          close(key, r, states[key])
        end
      end
    end
    return told('c', parts)
  end

  -- Notes refused costs where those count; charges nothing else.
  local function note_refused(p, base, admitted)
    local states = {}
    for i, r in ipairs(p.checks) do
      if r.counts and not admitted[i] and r.cost > 0 then
        local key = KEYS[base + i]
        states[key] = states[key] or open(key, r)
        r.kind.charge(states[key], r)
        states[key].record = r
      end
    end
    for key, state in pairs(states) do
      close(key, state.record, state)
    end
  end

  local function passes(p, admitted)
    local alternative
    for i, r in ipairs(p.checks) do
      if r.role == 0 and not admitted[i] then
        return false
      elseif r.role == 1 then
        alternative = alternative or admitted[i]
      end
    end
    return alternative ~= false
  end

  -- What is left of a key that stands in a parcel is told as it was before.
  local function judge(p, base, states)
    local verb, admitted, parts, often = p.verb, {}, {}, {}
    for i, r in ipairs(p.checks) do
      local key = KEYS[base + i]
      local state, stretched = states[key], nil
      state.record = r
      often[key] = (often[key] or 0) + 1
      if often[key] > 1 and r.kind == bucket and not bucket.owes_less(state, r.longest_s, r.longest_t) then
        -- Charged beyond what is believed: the second would not believe the first.
        return as_they_are('o', base, p.count)
      end
      if verb == VERB.take then
        admitted[i] = take(state, r)
      else
        admitted[i], stretched = admits(state, r)
        if admitted[i] or verb == VERB.charge then
          charge(state, r, stretched)
        elseif r.counts then
          charge(state, r, false)
        end
      end
    end
    for i, r in ipairs(p.checks) do
      local key = KEYS[base + i]
      if r.kind.is_list then
        local list = states[key]
        local brief = admitted[i] and often[key] == 1 and verb ~= VERB.charge
        local total = list.was and list.was.total or 0
        local upto = brief and 0 or total - r.spare
        if list.moved and often[key] > 1 then
          -- What a holder had goes to another place, wherever that was.
          upto = total
        end
        parts[i] = summary(list, upto, r.kind == slots)
      else
        parts[i] = value[key]
      end
    end
    local charged = verb ~= VERB.read and verb ~= VERB.none and (verb ~= VERB.all or passes(p, admitted))
    if charged then
      for key, state in pairs(states) do
        if state.changed then
          close(key, state.record, state)
        end
      end
    elseif verb ~= VERB.read then
      note_refused(p, base, admitted)
    end
    return told(charged and 'c' or 'n', parts)
  end

  return function(body, base)
    local p = parsed[body] or parse(body)
    if p.verb == VERB.swap then
      return p.count, swap(p, base)
    end
    for _, settled in ipairs(p.settled) do
      local key = KEYS[base + settled.index]
      if value[key] == settled.was then
        put(key, settled)
      end
    end
    if p.verb == VERB.reset then
      for i = 1, p.count do
        local key = KEYS[base + i]
        call('DEL', key)
        value[key], lives[key] = '', nil
      end
      return p.count, 'c'
    end
    local states, why_not = open_all(p, base)
    if not states then
      return p.count, why_not
    end
    if p.verb == VERB.refund or p.verb == VERB.renew then
      return p.count, give_back(p, base, states)
    end
    return p.count, judge(p, base, states)
  end
end
local answers = { now_s, now_us }
local base = 0
-- The last record of its kind: requests of one rule and cost bring the same bytes.
local known, scale, grain, longest_s, longest_t, room_s, room_t, cost_s, cost_t, stretch
for i = 2, #ARGV do
  local body = ARGV[i]
  if body ~= known then
    local count, verb, kind = byte(body, 1, 3)
    if count == 1 and verb == 1 and kind == 1 then
      known = body
      scale, grain, longest_s, longest_t, room_s, room_t, cost_s, cost_t = read('>I3I2I5I6I5I6I5I6', body, 5)
      stretch = stretch_of(scale)
    end
  end
  if body == known then
    -- One check of one hard bucket, which is most of what is asked: what
    -- bucket.lua does, written out.
    base = base + 1
    local key = KEYS[base]
    local raw = value[key]
    local s, t, stale, ends = now_s, now_t, false, nil
    if raw ~= '' then
      if #raw == 12 then
        local x, y = read('>I6I6', raw)
        local high, written = x % 16384, y % SCALE
        local full_s, full_t = (x - high) / 16384, high * LOW + (y - written) / SCALE
        stale, ends = written ~= scale, full_s - full_s % stretch + stretch
        if grain > 1 then
          full_t = full_t - full_t % grain
        end
        if full_s > s or (full_s == s and full_t > t) then
          s, t = full_s, full_t
        end
      else
        stale = true
      end
    end
    local owed_s, owed_t = s - now_s, t - now_t
    if owed_t < 0 then
      owed_s, owed_t = owed_s - 1, owed_t + TICKS
    end
    if stale or owed_s > longest_s or (owed_s == longest_s and owed_t >= longest_t) then
      answers[i + 1] = 's' .. raw
    else
      answers[i + 1] = raw
      if (owed_s < room_s or (owed_s == room_s and owed_t < room_t)) and (cost_t > 0 or cost_s > 0) then
        s, t = s + cost_s, t + cost_t
        if t >= TICKS then
          s, t = s + 1, t - TICKS
        end
        local low = t % LOW
        value[key] = pack('>I6I6', s * 16384 + (t - low) / LOW, low * SCALE + scale)
        local until_s = s - s % stretch + stretch
        if until_s == ends then
          lives[key] = lives[key] or false
        else
          lives[key] = until_s - now_s + slack
        end
      end
    end
  else
    general = general or make_general()
    local fine, count, answer = pcall(general, body, base)
    if fine then
      base = base + count
      answers[i + 1] = answer
    else
      -- Its keys are not known to the others: nothing of theirs is lost.
      local keys = byte(body)
      base = base + (keys == 255 and read('>I2', body, 2) or keys)
      answers[i + 1] = 'e' .. (type(count) == 'table' and count.err or tostring(count))
    end
  end
end

-- Few different lives, each written as text once.
local text = {}
for key, seconds in next, lives do
  if seconds then
    local written = text[seconds]
    if not written then
      written = string.format('%.0f', seconds)
      text[seconds] = written
    end
    call('SET', key, value[key], 'EX', written)
  else
    call('SETRANGE', key, '0', value[key])
  end
end
return answers
