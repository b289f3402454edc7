  -- Token bucket and leaky bucket. The state is the instant at which the bucket is full again, in seconds and ticks, and
  -- the 18 bits of the scale that it was written under.
  local bucket = {}
  kinds[1] = bucket

  function bucket.parse(body, at, soft, r)
    r.scale, r.grain, r.longest_s, r.longest_t, r.room_s, r.room_t, r.cost_s, r.cost_t, r.cost, at =
      read('>I3I2I5I6I5I6I5I6I7', body, at)
    if soft then
      r.hard_s, r.hard_t, at = read('>I5I6', body, at)
    end
    if r.verb == VERB.charge or r.verb == VERB.report then
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
      return { s = now_s, t = now_t, scale = scale, full_s = s, full_t = t }
    end
    local state = { s = s, t = t, scale = scale }
    if not bucket.owes_less(state, r.longest_s, r.longest_t) then
      return nil
    end
    return state
  end

  -- Takes a full bucket back to when it became full, at most by `age`, so that it refills what is charged since then.
  function bucket.rewind(state, age)
    if state.s ~= now_s or state.t ~= now_t then
      return
    end
    local at = math.max(0, now - age)
    local us = at % 1000000
    local s, t = (at - us) / 1000000, us * TICKS_IN_MICRO
    if state.full_s and (state.full_s > s or (state.full_s == s and state.full_t > t)) then
      s, t = state.full_s, state.full_t
    end
    state.s, state.t = s, t
  end

  -- Whether the bucket is full again in less than this span.
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

  -- Doubles the span of one unit, then halves it: exact without a division.
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
      -- A debt beyond the longest span counts as an empty bucket.
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
