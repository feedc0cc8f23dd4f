-- What the keys of a record and of its snapshot hold, with the milliseconds that the record has left, or nil where there is no
-- record. One script, so that all is of the same moment.
local found = redis.call('GET', KEYS[1])
return found and { found, redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) }
