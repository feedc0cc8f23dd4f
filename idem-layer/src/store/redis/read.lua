-- What the key holds with the milliseconds it has left, or nil. One script, so that both are of the same moment.
local found = redis.call('GET', KEYS[1])
return found and { found, redis.call('PTTL', KEYS[1]) }
