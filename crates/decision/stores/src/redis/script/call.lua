  -- Decodes a call.
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
      if verb == VERB.report then
        r.node, r.epoch, r.total, r.confirmed, r.current, r.age, r.keep, at = read('>c8I6I7I7I7I7I5', body, at)
      end
      p.checks[i] = r
    end
    parsed[body] = p
    return p
  end

  -- The state of a key settled at this instant; nil if only the caller can settle it.
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
      -- After a step back of the clock nothing stays open longer than a new allowance.
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

  -- Whether the cost fits, and whether only within the allowance.
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

  -- Whether two records of one key settle its state in the same way.
  local function alike(one, other)
    return one.kind == other.kind and one.soft == other.soft and one.scale == other.scale
      and one.grain == other.grain and one.longest == other.longest and one.longest_s == other.longest_s and one.longest_t == other.longest_t and one.period == other.period and one.ends == other.ends
      and one.slice == other.slice and one.slices == other.slices and one.lasting == other.lasting
      and one.rest == other.rest and one.lasting_slot == other.lasting_slot
  end

  local function reply(status, parts)
    for i = 1, #parts do
      parts[i] = pack('>I4', #parts[i]) .. parts[i]
    end
    return status .. table.concat(parts)
  end

  local function unchanged_states(status, base, count)
    local raws = {}
    for i = 1, count do
      raws[i] = value[KEYS[base + i]]
    end
    return reply(status, raws)
  end

  -- Stores a state that the caller settled or decided.
  local function put(key, settled)
    local left = settled.lives
    if #settled.becomes == 12 then
      local x, y = read('>I6I6', settled.becomes)
      local s, stretch = (x - x % 16384) / 16384, stretch_of(y % SCALE)
      left = math.max(left, s - s % stretch + stretch - now_s)
    end
    value[key], lives[key] = settled.becomes, left + slack
  end

  -- Compare-and-swap of all keys.
  local function swap(p, base)
    for _, settled in ipairs(p.settled) do
      if value[KEYS[base + settled.index]] ~= settled.was then
        return unchanged_states('s', base, p.count)
      end
    end
    for _, settled in ipairs(p.settled) do
      put(KEYS[base + settled.index], settled)
    end
    return 'c'
  end

  -- Opens every key of a call once. Returns the states by key, or nil and the reply with the states that the caller has
  -- to settle.
  local function open_all(p, base)
    local states, first, stale, odd = {}, {}, nil, false
    for i, r in ipairs(p.checks) do
      local key = KEYS[base + i]
      if r.kind.is_list and (p.verb == VERB.refund or p.verb == VERB.renew) then
        -- Opened one by one: each check sees the writes of the one before.
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
      return nil, reply('s', stale)
    elseif odd then
      return nil, unchanged_states('o', base, p.count)
    end
    return states
  end

  local function refund_or_renew(p, base, states)
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
    return reply('c', parts)
  end

  -- Charges refused costs to the limits that count them; charges nothing else.
  local function charge_refused(p, base, admitted)
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

  -- Decides all checks. The reply has the states before the call.
  local function judge(p, base, states)
    local verb, admitted, parts, often = p.verb, {}, {}, {}
    for i, r in ipairs(p.checks) do
      local key = KEYS[base + i]
      local state, stretched = states[key], nil
      state.record = r
      often[key] = (often[key] or 0) + 1
      if often[key] > 1 and r.kind == bucket and not bucket.owes_less(state, r.longest_s, r.longest_t) then
        -- The first charge exceeds the longest span, which the second check would reject.
        return unchanged_states('o', base, p.count)
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
          -- The holder's entry moves, so all entries are reported.
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
      charge_refused(p, base, admitted)
    end
    return reply(charged and 'c' or 'n', parts)
  end

