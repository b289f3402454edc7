local function make_general()
  local VERB = { read = 0, all = 1, always = 2, take = 3, refund = 4, reset = 5, charge = 6, renew = 7, none = 8, swap = 9 }
  local ALWAYS = 72057594037927935 -- a room that admits whatever is used

  -- Each kind of limit is a table of
  --   parse(body, at, soft, r) -> where the next record begins
  --   open(raw, r)             -> state settled at this instant; nil when only the caller can settle it
  --   fits(state, r, hard)     -> whether the cost fits, in the stretched limit or in the hard one
  --   most(state, r, hard)     -> how much fits, up to the cost
  --   charge(state, r, amount) -- the record's whole cost when no amount is given
  --   refund(state, r)
  --   close(state)             -> raw, the instant at which it stops mattering
  local kinds = {}
