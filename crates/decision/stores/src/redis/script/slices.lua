  -- Sliding window: the start of the newest slice, and a count for each slice, oldest first.
  local slices = {}
  kinds[3] = slices

  function slices.parse(body, at, soft, r)
    r.slice, r.lag, r.slices, r.room, r.cost, at = read('>I7I3I1I7I7', body, at)
    r.down, r.slices = r.slices >= 128, r.slices % 128
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

  -- Whether the weighted sum, rounded up or down, is at most `room`: rounded down, whether it is below one more.
  local function within(state, room, down)
    local counts, inside = state.counts, 0
    for i = 2, #counts do
      inside = inside + counts[i]
    end
    if inside > room then
      return false
    end
    local slice, oldest = state.slice, counts[1]
    local left = slice - math.max(0, math.min(now - state.begun, slice))
    room = room - inside + (down and 1 or 0)
    -- Products of doubles are exact to one part in 2^52.
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
    return not down
  end

  local function fits_in(state, r, room)
    return room == ALWAYS or (room > 0 and within(state, room - 1, r.down))
  end

  function slices.fits(state, r, hard)
    return fits_in(state, r, hard and r.hard or r.room)
  end

  -- The rooms are one more than the limits. Binary search: exact without a division.
  function slices.most(state, r, hard)
    local room = hard and r.hard or r.room
    local most, least = math.min(r.cost, room - 1), 0
    while least < most do
      local middle = least + math.ceil((most - least) / 2)
      if fits_in(state, r, room - middle) then
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
