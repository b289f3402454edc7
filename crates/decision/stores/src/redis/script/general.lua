local function make_general()
  local VERB = { read = 0, all = 1, always = 2, take = 3, refund = 4, reset = 5, charge = 6, renew = 7, none = 8, swap = 9, report = 10 }
  local ALWAYS = 72057594037927935 -- room that admits whatever is used

  -- Each kind of limit is a table of
  --   parse(body, at, soft, r) -> position of the next record
  --   open(raw, r)             -> state settled at this instant; nil if only the caller can settle it
  --   fits(state, r, hard)     -> whether the cost fits, in the wider limit of a soft one or in the hard one
  --   most(state, r, hard)     -> how much fits, up to the cost
  --   charge(state, r, amount) -- the whole cost if no amount is given
  --   refund(state, r)
  --   close(state)             -> raw, the instant from which it is unused
  local kinds = {}
