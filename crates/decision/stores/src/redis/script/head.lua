-- One EVALSHA decides the calls of many requests, one after the other, at one instant. KEYS: the keys of all calls, in
-- order. ARGV[1]: the instant in microseconds, or empty for the server's clock. ARGV[1 + i]: call i. Returns {seconds,
-- microseconds, one string for each call}.
--
-- Numbers are doubles, so every number here is an integer below 2^53: time is counted in microseconds, and for buckets,
-- where microseconds are too coarse, in seconds and ticks of 2^-14 ns.

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
  -- A manual clock stands still while keys expire by the real one.
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

-- The value of each string key after the earlier calls, '' for none; and the seconds until a changed key expires, or
-- false if its expiry is right already. Written once, at the end, so that a busy key costs one write per EVALSHA.
local value, lives = {}, {}
for first = 1, #KEYS, 4000 do
  local last = math.min(first + 3999, #KEYS)
  local found = call('MGET', unpack(KEYS, first, last))
  for i = first, last do
    value[KEYS[i]] = found[i - first + 1] or ''
  end
end

-- Time is divided into stretches; the key of a bucket expires at the end of the stretch in which its state ends. So most
-- charges keep the expiry and overwrite the twelve bytes, which costs two thirds of a SET. A stretch is four to eight
-- times as long as one unit takes, between 16 s and 17 min. It depends only on the scale, so the expiry of a key follows
-- from its state, whichever limit wrote it.
local function stretch_of(scale)
  return 2 ^ math.min(math.max((scale - scale % 2048) / 2048 - 31, 4), 10)
end

-- Decides all calls except one check of one bucket; created on first use.
local general
