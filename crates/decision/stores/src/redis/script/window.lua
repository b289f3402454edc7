  -- Fixed window: its end, and the units used in it.
  local window = {}
  kinds[2] = window

  function window.parse(body, at, soft, r)
    r.period, at = read('>I7', body, at)
    if r.period == 0 then
      -- A calendar window, as the caller computed it.
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

  -- The time since the last multiple of the period. The quotient of two doubles can be rounded up to an integer that it
  -- is just below.
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
      -- An older reading of the clock.
      ends = known
    end
    return { ends = ends, count = count }
  end

  function window.fits(state, r, hard)
    return state.count < (hard and r.hard or r.room)
  end

  -- The rooms are one more than the limits.
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
