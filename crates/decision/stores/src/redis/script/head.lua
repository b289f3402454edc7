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
