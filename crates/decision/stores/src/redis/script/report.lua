  -- Reports of cumulative counts (`CountReport` in Rust has the same rule). Beside each counter there is a key with a
  -- record for each node: its id, the number of the count, the highest total, and when it was written, in seconds.
  local RECORD, RECORD_BYTES = '>c8I6I7I5', 26

  -- The position of a node's record.
  local function find_record(raw, node)
    local from = 1
    while true do
      local found = string.find(raw, node, from, true)
      if not found or (found - 1) % RECORD_BYTES == 0 then
        return found
      end
      from = found + 1
    end
  end

  -- The units to charge, and whether the server has lost those that it had confirmed.
  local function due(r, raw, counter_is_gone)
    local expired = r.total - math.min(r.total, r.current)
    local at, known, lost = find_record(raw, r.node), nil, false
    local _, epoch, total
    if at then
      _, epoch, total = read(RECORD, raw, at)
    end
    if epoch and epoch > r.epoch then
      known = r.total
    elseif epoch == r.epoch then
      known = total
    elseif r.confirmed == 0 then
      known = 0
    elseif raw == '' and not counter_is_gone then
      -- The records were evicted, and the counter was not.
      known = r.confirmed
    else
      known, lost = expired, true
    end
    if r.kind ~= bucket then
      known = math.max(known, expired)
    end
    local is_news = not epoch or epoch < r.epoch or (epoch == r.epoch and total < r.total)
    return math.max(0, r.total - known), lost, is_news, at
  end

  -- The records with this one in them; a new node's replaces those that are no longer needed.
  local function with_record(raw, at, r)
    local record = pack(RECORD, r.node, r.epoch, r.total, now_s)
    if at then
      return sub(raw, 1, at - 1) .. record .. sub(raw, at + RECORD_BYTES)
    end
    local kept = { record }
    for from = 1, #raw - RECORD_BYTES + 1, RECORD_BYTES do
      local _, _, _, written = read(RECORD, raw, from)
      if written + r.keep >= now_s then
        kept[#kept + 1] = sub(raw, from, from + RECORD_BYTES - 1)
      end
    end
    return table.concat(kept)
  end

  local function report(p, base, states)
    local parts = {}
    for i, r in ipairs(p.checks) do
      local key, records = KEYS[base + i], KEYS[base + p.count + i]
      local state, raw = states[key], value[records]
      local gone = value[key] == ''
      if r.kind.is_list then
        gone = state.total == 0
      end
      local units, lost, is_news, at = due(r, raw, gone)
      local before = value[key]
      if r.kind.is_list then
        local total = state.was and state.was.total or 0
        before = summary(state, total - math.max(0, r.limit - 2 * units))
      end
      parts[i] = pack('>I7I1', units, lost and 1 or 0) .. before
      if units > 0 then
        if r.kind == bucket and not lost then
          bucket.rewind(state, r.age)
        end
        r.kind.charge(state, r, units)
        close(key, r, state)
      end
      if is_news then
        value[records], lives[records] = with_record(raw, at, r), r.keep
      end
    end
    return reply('c', parts)
  end

