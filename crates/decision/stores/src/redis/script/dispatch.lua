  return function(body, base)
    local p = parsed[body] or parse(body)
    if p.verb == VERB.swap then
      return p.count, swap(p, base)
    end
    for _, settled in ipairs(p.settled) do
      local key = KEYS[base + settled.index]
      if value[key] == settled.was then
        put(key, settled)
      end
    end
    if p.verb == VERB.reset then
      for i = 1, p.count do
        local key = KEYS[base + i]
        call('DEL', key)
        value[key], lives[key] = '', nil
      end
      return p.count, 'c'
    end
    local states, why_not = open_all(p, base)
    if p.verb == VERB.report then
      -- A report has two keys for each check: the counter, and the records.
      return p.count * 2, why_not or report(p, base, states)
    end
    if not states then
      return p.count, why_not
    end
    if p.verb == VERB.refund or p.verb == VERB.renew then
      return p.count, refund_or_renew(p, base, states)
    end
    return p.count, judge(p, base, states)
  end
end
