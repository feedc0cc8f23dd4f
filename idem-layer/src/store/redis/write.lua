-- Writes one record, if its key still holds what the caller has seen. Answers 1; or else, having written nothing, what its keys
-- hold with the milliseconds that the record has left; or nil where there is no record.
--
-- KEYS: the record, its snapshot
-- ARGV: first and last byte to compare, the bytes expected there, the most milliseconds that may be left ('' for any),
--       the record ('' to delete), the milliseconds it lives ('' for ever),
--       the snapshot ('' if the record holds it or has none), the milliseconds it lives
local key = KEYS[1]
local first, last, expected, most_left, record, lives, snapshot, replays = unpack(ARGV)

local as_seen = redis.call('GETRANGE', key, first, last) == expected
if as_seen and most_left ~= '' then
    local left = redis.call('PTTL', key)
    as_seen = left >= 0 and left <= tonumber(most_left)
end
if as_seen then
    if snapshot ~= '' then
        redis.call('SET', KEYS[2], snapshot, 'PX', replays)
    end
    if record == '' then
        redis.call('DEL', key, KEYS[2])
    elseif lives == '' then
        redis.call('SET', key, record)
    else
        redis.call('SET', key, record, 'PX', lives)
    end
    return 1
end

local found = redis.call('GET', key)
return found and { found, redis.call('PTTL', key), redis.call('GET', KEYS[2]) }
