-- Shortens the life of every key by ARGV[1] milliseconds. Keys without an expiry stay.
for _, key in ipairs(redis.call('KEYS', '*')) do
    local left = redis.call('PTTL', key)
    if left >= 0 then
        left = left - tonumber(ARGV[1])
        if left > 0 then
            redis.call('PEXPIRE', key, string.format('%d', left))
        else
            redis.call('DEL', key)
        end
    end
end
