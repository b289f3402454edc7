  -- Shared by sliding logs and slots: a sorted set of entries by instant. Members with a negative score are not entries:
  -- `t`, the sum of the entries; `a`, the allowance of a soft limit; `#...`, the number of slots of a holder, if not 1.
  local CHUNK = 12
  local lists = {}

  -- Decodes the reply of ZRANGE.
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

  -- The entry at a position, loaded on demand.
  local function entry(list, position)
    while position > #list.loaded and not list.complete do
      local from = list.marks + #list.loaded
      local found = call('ZRANGE', list.key, from, from + 63, 'WITHSCORES')
      list.complete = #found < 128
      take_in(list, found)
    end
    return list.loaded[position]
  end

  -- Opens the list of a key without the entries scored at `gone` or below.
  local function open_list(key, gone, amount)
    local list = { key = key, total = 0, marks = 0, loaded = {}, first = 1, closes = 0, rests = 0, amount = amount }
    local found = value[key] == '' and redis.pcall('ZRANGE', key, 0, CHUNK - 1, 'WITHSCORES') or { err = 'a string' }
    if found.err then
      -- The state of another algorithm is ignored.
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

  -- The part of a list that the caller needs, as it was opened: the oldest entries up to an amount, and the newest.
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

  -- Writes the members that all lists have, or deletes an empty list.
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
