local answers = { now_s, now_us }
local base = 0
-- The last body of each of two kinds, decoded: requests of one rule and cost have the same bytes.
local known, scale, grain, longest_s, longest_t, room_s, room_t, cost_s, cost_t, stretch
local known_window, period, lag, room, cost
for i = 2, #ARGV do
  local body = ARGV[i]
  if body ~= known and body ~= known_window then
    local count, verb, kind, flags = byte(body, 1, 4)
    if count == 1 and verb == 1 and kind == 1 then
      known = body
      scale, grain, longest_s, longest_t, room_s, room_t, cost_s, cost_t = read('>I3I2I5I6I5I6I5I6', body, 5)
      stretch = stretch_of(scale)
    elseif count == 1 and verb == 1 and kind == 2 and flags == 0 and read('>I7', body, 5) > 0 then
      known_window = body
      period, lag, room, cost = read('>I7I3I7I7', body, 5)
    end
  end
  if body == known then
    -- The most frequent call, one check of one hard bucket: bucket.lua inlined.
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
  elseif body == known_window then
    -- One required check of one hard fixed window without a calendar: window.lua inlined.
    base = base + 1
    local key = KEYS[base]
    local raw = value[key]
    if raw ~= '' and (#raw ~= 15 or byte(raw) ~= 87) then
      answers[i + 1] = pack('>c1I4', 's', #raw) .. raw
    else
      local passed, used = now % period, 0
      if passed < 0 then
        passed = passed + period
      end
      local ends = now - passed + period
      if raw ~= '' then
        local until_us, count = read('>I7I7', raw, 2)
        if until_us > now then
          used = count
          if until_us - ends == period and ends - now <= lag then
            -- An older reading of the clock.
            ends = until_us
          end
        end
      end
      if used < room then
        answers[i + 1] = pack('>c1I4', 'c', #raw) .. raw
        if cost > 0 then
          local left = math.max(0, ends - now) / 1000000
          value[key], lives[key] = pack('>c1I7I7', 'W', ends, math.min(COUNT_MAX, used + cost)), left - left % 1 + slack
        end
      else
        answers[i + 1] = pack('>c1I4', 'n', #raw) .. raw
      end
    end
  else
    general = general or make_general()
    local fine, count, answer = pcall(general, body, base)
    if fine then
      base = base + count
      answers[i + 1] = answer
    else
      -- Skip its keys, so that the other calls find theirs.
      local keys, verb = byte(body, 1, 2)
      if keys == 255 then
        keys, verb = read('>I2I1', body, 2)
      end
      base = base + (verb % 128 == 10 and keys * 2 or keys)
      answers[i + 1] = 'e' .. (type(count) == 'table' and count.err or tostring(count))
    end
  end
end

-- There are few different lifetimes; each is formatted once.
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
