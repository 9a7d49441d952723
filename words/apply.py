#!/usr/bin/env python3
"""Renames the project's private dialect into standard words, in any state of its tree.

    apply.py ROOT [--dry] [--no-fmt] [--no-files]

The tables beside this file say what is renamed; nothing is renamed by rule:

* idents.tsv  old, new, scope, reason. `old` is an identifier, or a sequence of tokens (`Sending::Cut`, `.settle(`) of which `new`
              has as many. The first row that fits a file wins, longer sequences before shorter ones. A row with new == old
              says that the identifier stays there, and why.
* files.tsv   old path, new path, of files; the modules of Rust files follow.
* texts.tsv   old, new, glob. In *.rs only comments and strings (or with `code:` before the glob, the whole file), elsewhere the
              whole file. A phrase begins and ends at word boundaries. All phrases are replaced in one pass, longest first; a
              phrase with new == old keeps shorter ones off.

A scope `def:GLOB` means the type that a file of GLOB defines, wherever it is named: by its own file, by `use`, by `module::Type`.

A scope is a list of globs divided by commas; `!` excludes; globs are of the paths before files.tsv (paths after it fit too).
"""
import collections, fnmatch, functools, os, re, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
TOKEN = re.compile(r'''
 (?P<comment>//[^\n]*|/\*.*?\*/)
|(?P<raw>\b(?:b|c)?r(?P<h>\#*)".*?"(?P=h))
|(?P<string>(?:\bb|\bc)?"(?:\\.|[^"\\])*")
|(?P<char>(?:\bb)?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])')
|(?P<life>'[A-Za-z_]\w*)
|(?P<id>(?:r\#)?[A-Za-z_]\w*)
|(?P<num>\d\w*)
|(?P<ws>\s+)
|(?P<p>.)
''', re.X | re.S)
LONG_NAME = re.compile(r'\b[a-z][a-z0-9]*(?:_[a-z0-9]+){3,}\b')      # a test that is named in a string
TEXT_FILES = ('.md', '.toml', '.txt', '.yml', '.yaml', '.sh', '.json', '.service', '.svg', '.csv')
HISTORY = ('docs/decisions/', 'target/')                                   # never edited, only superseded
LISTED = set('''cut cuts cutting uncut settle settles settled settling unsettled turn turns gate gates judge judges judged planted plant
 mark marks marked story stories papers stranger strangers told tell tells teller telling place placed places doubt doubts withheld
 withhold liar liars lie lies lying'''.split())


def rows(name):
    out = []
    for number, line in enumerate(open(f'{HERE}/{name}', encoding='utf8'), 1):
        line = line.rstrip('\n')
        if line.strip() and not line.startswith('# '):
            out.append((number, line.split('\t')))
    return out


def tokens(text):
    for m in TOKEN.finditer(text):
        yield ('raw' if m.lastgroup == 'h' else m.lastgroup), m.group(0)


def plain(text):
    """The tokens of a pattern, without blanks."""
    return [t for k, t in tokens(text) if k != 'ws']


def components(ident):
    parts = [p for part in ident.split('_') for p in re.findall(r'[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+', part)]
    return [p.lower() for p in parts]


class Scope:
    def __init__(self, text):
        globs = [g.strip() for g in text.split(',') if g.strip()] or ['*']
        self.yes = [self.rx(g) for g in globs if not g.startswith('!')] or [re.compile('.*')]
        self.no = [self.rx(g[1:]) for g in globs if g.startswith('!')]

    @staticmethod
    @functools.lru_cache(None)
    def rx(glob):
        out, i = '', 0
        while i < len(glob):
            if glob.startswith('**/', i):
                out, i = out + '(?:.*/)?', i + 3
            elif glob.startswith('**', i):
                out, i = out + '.*', i + 2
            elif glob[i] == '*':
                out, i = out + ('.*' if glob == '*' else '[^/]*'), i + 1
            elif glob[i] == '{':
                end = glob.index('}', i)
                out, i = out + '(?:' + '|'.join(re.escape(x) for x in glob[i + 1:end].split(';')) + ')', end + 1
            else:
                out, i = out + re.escape(glob[i]), i + 1
        return re.compile(out + r'\Z')

    def fits(self, paths):
        return any(any(r.match(p) for r in self.yes) and not any(r.match(p) for r in self.no) for p in paths)


DEFINES = re.compile(r'^\s*(?:pub(?:\([a-z: ]+\))? )?(?:struct|enum|trait|type|union) (\w+)', re.M)


class Types:
    """Which file defines the type that a name means in a file."""
    def __init__(self, root):
        self.defs = collections.defaultdict(list)
        self.text, self.uses_of = {}, {}
        for path in list_files(root):
            if path.endswith('.rs'):
                self.text[path] = open(f'{root}/{path}', encoding='utf8').read()
                for name in set(DEFINES.findall(self.text[path])):
                    self.defs[name].append(path)
        self.crates = {crate_of(p).split('/')[-1].replace('-', '_'): crate_of(p) for p in self.text}
        self.crates['farshore_fuzz'] = 'fuzz'

    def uses(self, path):
        """(leaf, segments) of every `use`."""
        if path not in self.uses_of:
            out = []
            for m in re.finditer(r'^\s*(?:pub(?:\([a-z: ]+\))? )?use ([^;]*);', self.text[path], re.M):
                toks = [t for k, t in tokens(m.group(1)) if k not in ('ws', 'comment')]
                self.tree(toks, 0, [], out)
            out = [(p[-1], p[:-1], p[-1]) if leaf == 'self' and p else (leaf, p, alias) for leaf, p, alias in out]
            self.uses_of[path] = out
        return self.uses_of[path]

    def tree(self, toks, i, prefix, out):
        here = list(prefix)
        while i < len(toks):
            t = toks[i]
            if t == ':':
                i += 1
            elif t == '{':
                i += 1
                while toks[i] != '}':
                    i = self.tree(toks, i, here, out)
                    if toks[i] == ',':
                        i += 1
                here = None
                i += 1
            elif t in ',}':
                break
            elif t == 'as':
                out.append((here[-1], here[:-1], toks[i + 1]))
                here = None
                i += 2
            else:
                here.append(t)
                i += 1
        if here is not None and here != prefix:
            out.append((here[-1], here[:-1], here[-1]))
        return i

    def find(self, name, segments, path):
        """The definition that a path of modules leads to."""
        first = segments[0] if segments else 'crate'
        crate = self.crates.get(first) if first not in ('crate', 'super', 'self') else crate_of(path)
        if crate is None or (first in self.crates and self.is_module(path, first)):
            crate = crate_of(path) if self.is_module(path, first) else None
        if crate is None:
            return None
        found = [d for d in self.defs[name] if crate_of(d) == crate]
        if crate != crate_of(path):
            is_public = re.compile(r'^\s*pub (?:struct|enum|trait|type|union) ' + name + r'\b', re.M)
            found = [d for d in found if is_public.search(self.text[d])]
        if not found:
            return None
        if first == 'super' and len(segments) == 1 or first == 'self' and len(segments) == 1:
            around = self.parents(path)
            hits = [d for d in found if d in around]
            if hits:
                return hits[0]
        parts = [s for s in segments if s not in ('crate', 'super', 'self')]
        def score(d):
            steps = re.sub(r'\.rs$', '', d).split('/')
            last = 2 if parts and steps[-1 if steps[-1] != 'mod' else -2] == parts[-1] else 0
            return (last + sum(p in steps for p in parts), os.path.dirname(d) == os.path.dirname(path), -len(steps))
        return max(found, key=score)

    def is_module(self, path, name):
        """A module of the own crate; one that is called like a crate only where it is declared."""
        if name in self.crates:
            return re.search(r'^\s*(?:pub(?:\([a-z: ]+\))? )?mod ' + name + r'\b', self.text[path], re.M) is not None
        crate = crate_of(path)
        return any(crate_of(p) == crate and (p.endswith(f'/{name}.rs') or f'/{name}/' in p[len(crate):]) for p in self.text)

    def parents(self, path):
        around = os.path.dirname(path)
        return [around + '.rs', around + '/mod.rs', around + '/lib.rs', around + '/main.rs']

    def of(self, name, path):
        """What `name` alone means in the file."""
        if path in self.defs[name]:
            return path
        globs = []
        for leaf, segments, alias in self.uses(path):
            if alias == name:
                return self.find(leaf, segments, path) if leaf == name else None
            if leaf == '*':
                globs.append(segments)
        for segments in globs:
            parts = [s for s in segments if s not in ('crate', 'super', 'self')]
            found = self.find(name, segments, path)
            if not found:
                continue
            steps = re.sub(r'\.rs$', '', found).split('/')
            stem = steps[-1] if steps[-1] not in ('mod', 'lib', 'main') else steps[-2]
            if (parts and stem == parts[-1]) or (not parts and found in self.parents(path)) or (len(parts) == 1 and parts[0] in self.crates):
                return found
        if re.search(r'^use super::\*;', self.text[path], re.M):
            for parent in self.parents(path):
                if parent in self.text and parent != path and self.of(name, parent):
                    return self.of(name, parent)
        return None


class Tables:
    def __init__(self):
        self.idents, self.typed = [], []
        for n, r in rows('idents.tsv'):
            scope = r[2] if len(r) > 2 else '*'
            if scope.startswith('def:'):
                self.typed.append((r[0], r[1], Scope(scope[4:]), n))
            else:
                self.idents.append((plain(r[0]), plain(r[1]), Scope(scope), n))
        for old, new, _, n in self.idents:
            if len(old) != len(new):
                sys.exit(f'idents.tsv:{n}: {old} and {new} differ in length')
        self.files = [(r[0], r[1]) for _, r in rows('files.tsv')]
        self.texts = []
        for n, r in rows('texts.tsv'):
            glob = r[2] if len(r) > 2 else '*'
            code = glob.startswith('code:')
            self.texts.append((r[0], r[1], Scope(glob[5:] if code else glob), code, n))
        self.before = collections.defaultdict(list)
        for old, new in self.files:
            self.before[new].append(old)
        self.modules = []
        for old, new in self.files:
            if old.endswith('.rs') and new.endswith('.rs'):
                self.modules += module_rows(old, new)

    def names(self, path):
        return [path] + self.before.get(path, [])


def crate_of(path):
    parts = path.split('/')
    return '/'.join(parts[:2]) if parts[0] == 'crates' else parts[0]


def module_rows(old, new):
    """`mod x;` and `x::` of a renamed file, as rows for its crate."""
    def module(path):
        path = re.sub(r'/(mod|lib|main)\.rs$', '', path)
        return [p for p in re.sub(r'\.rs$', '', path).split('/')]
    a, b = module(old), module(new)
    if a[-1] == b[-1]:
        return []
    scope = Scope(crate_of(old) + '/**')
    out = []
    if '/tests/' in old and old.count('/') == 3:
        return []                                       # a test of its own: nobody names it
    parent = a[-2]
    out.append(([parent, ':', ':', a[-1]], [parent, ':', ':', b[-1]], scope, 0))
    around = os.path.dirname(old)
    parents = [around + '/mod.rs', around + '/lib.rs', around + '/main.rs', around + '.rs']
    own = Scope(','.join(parents))
    out.append((['mod', a[-1]], ['mod', b[-1]], own, 0))
    out.append(([a[-1], ':', ':'], [b[-1], ':', ':'], own, 0))
    beside = Scope(around + '/*.rs')
    out.append((['super', ':', ':', a[-1]], ['super', ':', ':', b[-1]], beside, 0))
    return out


def variant_places(words):
    """Where the variants of enums are named in their definitions: those are no types."""
    found, i = set(), 0
    while i < len(words):
        if words[i] == 'enum' and i + 1 < len(words) and re.match(r'[A-Za-z_]', words[i + 1]):
            while i < len(words) and words[i] not in ('{', ';'):
                i += 1
            depth, begins = 0, True
            while i < len(words):
                w = words[i]
                if w in '([{':
                    depth += 1
                    begins = depth == 1
                elif w in ')]}':
                    depth -= 1
                    if depth == 0:
                        break
                    if w == ']' and depth == 1:
                        begins = True
                elif w == ',' and depth == 1:
                    begins = True
                elif depth == 1 and begins and re.match(r'[A-Z]', w):
                    found.add(i)
                    begins = False
                i += 1
        i += 1
    return found


class IdentMap:
    """What holds for one file: the first row that fits wins, longer ones before shorter ones."""
    def __init__(self, tables, names, types, path):
        self.single, self.seqs = {}, collections.defaultdict(list)
        self.typed, self.own_types = {}, {}             # of a module: `module::Type`; of this file: `Type`
        self.types, self.path, self.tables = types, path, tables
        for old, new, scope, _ in tables.typed:
            if path in types.text and old in types.text[path]:
                found = types.of(old, path)
                if found and scope.fits(tables.names(found)):
                    self.own_types.setdefault(old, new)
                self.typed.setdefault(old, []).append((scope, new))
        seen = set()
        for old, new, scope, _ in tables.idents + tables.modules:
            if not scope.fits(names):
                continue
            if len(old) == 1:
                self.single.setdefault(old[0], new[0])
            elif tuple(old) not in seen:
                seen.add(tuple(old))
                at = next(i for i, t in enumerate(old) if re.match(r'[A-Za-z_]', t))
                self.seqs[old[at]].append((old, new, at))
        for found in self.seqs.values():
            found.sort(key=lambda s: -len(s[0]))

    def changes(self):
        return {o: n for o, n in self.single.items() if o != n}

    def apply(self, text, in_comment=False):
        toks = list(tokens(text))
        solid = [i for i, (k, _) in enumerate(toks) if k not in ('ws', 'comment')]
        words = [toks[i][1] for i in solid]
        out = [t for _, t in toks]
        done, variants = set(), variant_places(words) if self.own_types else ()
        for pos, i in enumerate(solid):
            kind, tok = toks[i]
            if kind != 'id':
                continue
            for old, new, at in self.seqs.get(tok, ()):
                start = pos - at
                if start >= 0 and words[start:start + len(old)] == old:
                    for k, (o, n) in enumerate(zip(old, new)):
                        if solid[start + k] not in done:
                            if o != n:
                                out[solid[start + k]] = n
                            if o != n or (re.match(r'[A-Za-z_]', o) and old == new):
                                done.add(solid[start + k])
            if i in done:
                continue
            new = self.single.get(tok)
            if pos in variants:
                pass
            elif tok in self.typed and pos > 2 and words[pos - 1] == ':' and words[pos - 2] == ':':
                new = self.qualified(tok, words, pos) or (new if words[pos - 3][:1].isupper() else None)
            else:
                new = self.own_types.get(tok, new)
            if new:
                out[i] = new
        for i, (kind, tok) in enumerate(toks):
            if kind in ('string', 'raw'):
                out[i] = LONG_NAME.sub(lambda m: self.tables.everywhere.get(m.group(0), m.group(0)), self.in_format(tok))
            elif kind == 'comment' and not in_comment:
                out[i] = re.sub(r'`[^`\n]+`', lambda m: '`' + self.apply(m.group(0)[1:-1], True) + '`', tok)
        return ''.join(out)

    def qualified(self, tok, words, pos):
        """`a::b::Type`, and the leaf of a `use`."""
        segments, at = [], pos
        while at >= 3 and words[at - 1] == ':' and words[at - 2] == ':' and re.match(r'\w', words[at - 3]):
            segments.insert(0, words[at - 3])
            at -= 3
        if not segments or segments[-1][0].isupper():
            return None
        for leaf, prefix, alias in self.types.uses(self.path):
            if alias == segments[0] and leaf == segments[0]:
                segments = prefix + segments            # `use plan::formulas as f` is not followed
                break
            if alias == segments[0]:
                segments = prefix + [leaf] + segments[1:]
                break
        found = self.types.find(tok, segments, self.path)
        for leaf, prefix, _ in self.types.uses(self.path):
            crate = self.types.crates.get(prefix[0]) if prefix else None
            if not found and leaf == '*' and crate and any(
                    d.startswith(crate + '/') and d.endswith(f'/{segments[0]}.rs') for d in self.types.defs[tok]):
                found = self.types.find(tok, prefix + segments, self.path)
        for scope, new in self.typed[tok]:
            if found and scope.fits(self.tables.names(found)):
                return new
        return None

    def in_format(self, text):
        """Captured arguments: `{name}`, `{name:?}`, `{:width$}`."""
        def sub(m):
            return m.group(1) + self.single.get(m.group(2), m.group(2)) + m.group(3)
        text = re.sub(r'((?<!\{)\{)([A-Za-z_]\w*)(?=[:}])()', sub, text)
        return re.sub(r'(\{[^{}"]*?:[^{}]*?\.?)([A-Za-z_]\w*)(\$)', sub, text)


class TextMap:
    def __init__(self, tables, names, code):
        self.map = {}
        for old, new, scope, is_code, _ in tables.texts:
            if is_code == code and scope.fits(names):
                self.map.setdefault(old, new)
        def bounded(old):
            begin = r'(?<![A-Za-z0-9_])' if re.match(r'\w', old) else ''
            end = r'(?![A-Za-z0-9_])' if re.search(r'\w\Z', old) else ''
            return begin + r'\s+'.join(re.escape(p) for p in old.split(' ')) + end if not code else re.escape(old)
        keys = sorted(self.map, key=len, reverse=True)
        self.rx = re.compile('|'.join(f'(?:{bounded(k)})' for k in keys)) if keys else None

    def apply(self, text):
        if not self.rx:
            return text
        def sub(m):
            found = m.group(0)
            if found in self.map:
                return self.map[found]
            return self.map.get(re.sub(r'\s+', ' ', found), found)
        return self.rx.sub(sub, text)


def in_prose(text_map, text):
    """Comments and strings of a Rust file."""
    if not text_map.rx:
        return text
    return ''.join(text_map.apply(t) if k in ('comment', 'string', 'raw') else t for k, t in tokens(text))


def md_map(tables):
    """Identifiers that mean the same everywhere and cannot be taken for a word."""
    found = collections.defaultdict(set)
    for old, new, _, _ in tables.idents:
        if len(old) == 1:
            found[old[0]].add(new[0])
    for old, new, _, _ in tables.typed:
        found[old].add(new)
    return {o: next(iter(n)) for o, n in found.items()
            if len(n) == 1 and o not in n and ('_' in o or re.search(r'[a-z][A-Z]', o))}


def apply_md(text, mapping, basenames):
    def code(m):
        out = re.sub(r'(?<![\w/-])[A-Za-z_]\w*(?![\w])', lambda w: mapping.get(w.group(0), w.group(0)), m.group(0))
        return re.sub(r'[\w/]+\.rs\b(?!:\d)', lambda w: file_name(w.group(0), basenames), out)
    text = re.sub(r'```.*?```|`[^`\n]+`', code, text, flags=re.S)
    return re.sub(r'\b[A-Z][a-z]+(?:[A-Z][a-z]*){2,}\b', lambda w: mapping.get(w.group(0), w.group(0)), text)


def file_name(path, basenames):
    head, _, base = path.rpartition('/')
    return (head + '/' if head else '') + basenames.get(base, base)


def list_files(root):
    found = subprocess.run(['git', '-C', root, 'ls-files', '-co', '--exclude-standard'], capture_output=True, text=True, check=True)
    return [f for f in found.stdout.split('\n') if f and os.path.isfile(f'{root}/{f}') and not os.path.islink(f'{root}/{f}')]


def main():
    arguments = [a for a in sys.argv[1:] if not a.startswith('--')]
    flags = {a for a in sys.argv[1:] if a.startswith('--')}
    root = arguments[0]
    tables = Tables()
    check_idempotent(tables)
    names = collections.Counter(os.path.basename(o) for o, _ in tables.files)
    basenames = {}
    for o, n in tables.files:
        basenames.setdefault(os.path.basename(o), set()).add(os.path.basename(n))
    basenames = {o: next(iter(n)) for o, n in basenames.items() if len(n) == 1}
    mapping, changed, types = md_map(tables), 0, Types(root)
    tables.everywhere = mapping
    for path in list_files(root):
        if not path.endswith('.rs') and not path.endswith(TEXT_FILES) or path.startswith(HISTORY):
            continue
        try:
            text = open(f'{root}/{path}', encoding='utf8', newline='').read()
        except UnicodeDecodeError:
            continue
        new = one_file(tables, path, text, mapping, basenames, types)
        if new != text:
            changed += 1
            if '--dry' not in flags:
                open(f'{root}/{path}', 'w', encoding='utf8', newline='').write(new)
    print(f'{changed} files changed')
    if '--dry' not in flags and '--no-files' not in flags:
        move_files(root, tables)
    if '--dry' not in flags and '--no-fmt' not in flags:
        subprocess.run(['cargo', 'fmt'], cwd=root)
        if os.path.exists(f'{root}/fuzz/Cargo.toml'):
            subprocess.run(['cargo', 'fmt'], cwd=f'{root}/fuzz')
    report(root, tables)


def one_file(tables, path, text, mapping, basenames, types):
    names = tables.names(path)
    text = TextMap(tables, names, True).apply(text)
    prose = TextMap(tables, names, False)
    if path.endswith('.rs'):
        text = in_prose(prose, text)
        return IdentMap(tables, names, types, path).apply(text)
    if path.endswith('.md'):
        text = apply_md(text, mapping, basenames)
    return prose.apply(text)


def move_files(root, tables):
    for old, new in tables.files:
        if os.path.exists(f'{root}/{old}'):
            if os.path.exists(f'{root}/{new}'):
                print(f'both {old} and {new} exist: not moved')
                continue
            os.makedirs(os.path.dirname(f'{root}/{new}'), exist_ok=True)
            if subprocess.run(['git', '-C', root, 'mv', old, new], capture_output=True).returncode:
                os.rename(f'{root}/{old}', f'{root}/{new}')
            try:
                os.removedirs(os.path.dirname(f'{root}/{old}'))
            except OSError:
                pass


def check_idempotent(tables):
    """What a row makes must not be changed by another row of a common scope."""
    olds = {}
    for old, new, scope, n in tables.idents:
        if len(old) == 1 and old != new:
            olds.setdefault(old[0], []).append((new[0], n))
    for old, new, scope, n in tables.idents:
        for k, (o, w) in enumerate(zip(old, new)):
            if o != w and w in olds:
                print(f'note: idents.tsv:{n}: {o} -> {w}, and {w} -> {olds[w][0][0]} (line {olds[w][0][1]}): scopes must be apart')


def report(root, tables):
    known, left = collections.defaultdict(list), collections.Counter()
    for old, new, scope, _ in tables.idents:
        if len(old) == 1:
            known[old[0]].append((old[0] == new[0], scope))
    for old, new, scope, _ in tables.idents:
        for t in new:
            known[t].append((True, scope))
    where = {}
    for path in list_files(root):
        if not path.endswith('.rs'):
            continue
        names = tables.names(path)
        for kind, tok in tokens(open(f'{root}/{path}', encoding='utf8').read()):
            if kind == 'id' and any(c in LISTED for c in components(tok)):
                if any(stays and scope.fits(names) for stays, scope in known.get(tok, ())):
                    continue
                left[tok] += 1
                where.setdefault(tok, path)
    print(f'{len(left)} identifiers with listed words are unmapped where they stand:')
    for tok, count in sorted(left.items()):
        print(f'  {tok}\t{count}\t{where[tok]}')
    defined = collections.defaultdict(set)
    rx = re.compile(r'^\s*(?:pub(?:\([a-z: ]+\))? )?(?:struct|enum|trait|union) (\w+)', re.M)
    for path in list_files(root):
        if path.endswith('.rs'):
            for name in rx.findall(open(f'{root}/{path}', encoding='utf8').read()):
                defined[name].add(path)
    shared = {n: p for n, p in defined.items() if len(p) > 1}
    print(f'{len(shared)} type names are defined in more than one file:')
    for name, paths in sorted(shared.items()):
        print(f'  {name}: {", ".join(sorted(paths))}')


if __name__ == '__main__':
    main()
