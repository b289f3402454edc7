package tidegate

import (
	"strconv"
	"strings"
)

// bareItem is a text, a number, or something else that the fields do not use.
type bareItem struct {
	text     string
	number   int64
	isText   bool
	isNumber bool
}

func (b bareItem) isOther() bool { return !b.isText && !b.isNumber }

func (b bareItem) natural() *uint64 {
	if !b.isNumber || b.number < 0 {
		return nil
	}
	number := uint64(b.number)
	return &number
}

// listItem is a member of a list, or of a dictionary with its key.
type listItem struct {
	key        string
	value      bareItem
	parameters map[string]bareItem
}

func readLists(lines []string) []listItem {
	var items []listItem
	read := 0
	for _, line := range lines {
		if read += len(line); read > fieldBytesMax {
			break
		}
		if list, ok := readList(line); ok {
			items = append(items, list...)
		}
	}
	return items
}

// readList reads a list of items with parameters (RFC 9651). A malformed list is ignored as a whole.
func readList(text string) ([]listItem, bool) {
	r := listReader{rest: strings.Trim(text, " ")}
	var items []listItem
	for r.rest != "" {
		item, ok := r.member()
		if !ok {
			return nil, false
		}
		items = append(items, item)
		r.rest = strings.TrimLeft(r.rest, " \t")
		if r.rest == "" {
			break
		}
		if !r.take(',') {
			return nil, false
		}
		r.rest = strings.TrimLeft(r.rest, " \t")
		if r.rest == "" {
			return nil, false
		}
	}
	return items, true
}

type listReader struct{ rest string }

func (r *listReader) member() (item listItem, ok bool) {
	start := r.rest
	if key, isKey := r.key(); isKey && r.take('=') {
		item.key = key
	} else {
		r.rest = start
	}
	if item.value, ok = r.bareItem(); !ok {
		return item, false
	}
	item.parameters = make(map[string]bareItem)
	for r.take(';') {
		r.rest = strings.TrimLeft(r.rest, " ")
		name, isKey := r.key()
		if !isKey {
			return item, false
		}
		var value bareItem
		if r.take('=') {
			if value, ok = r.bareItem(); !ok {
				return item, false
			}
		}
		item.parameters[name] = value
	}
	return item, true
}

func (r *listReader) bareItem() (bareItem, bool) {
	if r.rest == "" {
		return bareItem{}, false
	}
	switch first := r.rest[0]; {
	case first == '"':
		return r.string()
	case first == '-' || isDigit(first):
		return r.number()
	case isLetter(first) || first == '*':
		token := r.span(func(b byte) bool {
			return isLetter(b) || isDigit(b) || strings.IndexByte("!#$%&'*+-.^_`|~:/", b) >= 0
		})
		return bareItem{text: token, isText: true}, true
	case first == '?':
		r.take('?')
		return bareItem{}, r.take('0') || r.take('1')
	case first == ':':
		r.take(':')
		r.span(func(b byte) bool { return isLetter(b) || isDigit(b) || strings.IndexByte("+/=", b) >= 0 })
		return bareItem{}, r.take(':')
	}
	return bareItem{}, false
}

func (r *listReader) string() (bareItem, bool) {
	r.take('"')
	var text strings.Builder
	for {
		text.WriteString(r.span(func(b byte) bool { return b >= ' ' && b <= '~' && b != '"' && b != '\\' }))
		if r.take('"') {
			return bareItem{text: text.String(), isText: true}, true
		}
		if !r.take('\\') || r.rest == "" || (r.rest[0] != '"' && r.rest[0] != '\\') {
			return bareItem{}, false
		}
		text.WriteByte(r.rest[0])
		r.rest = r.rest[1:]
	}
}

func (r *listReader) number() (bareItem, bool) {
	negative := r.take('-')
	digits := r.span(isDigit)
	if r.take('.') {
		decimals := r.span(isDigit)
		return bareItem{}, len(digits) >= 1 && len(digits) <= 12 && len(decimals) >= 1 && len(decimals) <= 3
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || len(digits) > 15 {
		return bareItem{}, false
	}
	if negative {
		number = -number
	}
	return bareItem{number: number, isNumber: true}, true
}

func (r *listReader) key() (string, bool) {
	if r.rest == "" || (r.rest[0] != '*' && (r.rest[0] < 'a' || r.rest[0] > 'z')) {
		return "", false
	}
	return r.span(func(b byte) bool {
		return (b >= 'a' && b <= 'z') || isDigit(b) || strings.IndexByte("_-.*", b) >= 0
	}), true
}

func (r *listReader) span(fits func(byte) bool) string {
	end := 0
	for end < len(r.rest) && fits(r.rest[end]) {
		end++
	}
	span := r.rest[:end]
	r.rest = r.rest[end:]
	return span
}

func (r *listReader) take(b byte) bool {
	if r.rest == "" || r.rest[0] != b {
		return false
	}
	r.rest = r.rest[1:]
	return true
}

func isDigit(b byte) bool  { return b >= '0' && b <= '9' }
func isLetter(b byte) bool { return (b|0x20) >= 'a' && (b|0x20) <= 'z' }
