import sys,re,glob; sys.path.insert(0,'/tmp/wd')
from tok import *
root='/work/main'
def g(c,f):
    base={'xtask':'xtask','fuzz':'fuzz'}.get(c,'crates/'+c)
    return f'{base}/**/{f}.rs'
out=[]; news=collections.defaultdict(list)
for l in open('/tmp/wd/in/types.in'):
    l=l.split('#')[0].strip()
    if not l: continue
    o,c,f,n=l.split()
    out.append(f'{o}\t{n}\tdef:{g(c,f)}'); news[n].append(l)
for n,ls in news.items():
    if len(ls)>1: print('twice',n,ls)
have=collections.Counter(t for f in files(root) for k,t,_ in toks(open(f'{root}/{f}',encoding="utf8").read()) if k=='id')
olds={l.split('\t')[0] for l in out}
defs=set()
rx=re.compile(r'^\s*(?:pub(?:\([a-z: ]+\))? )?(?:struct|enum|trait|type|union) (\w+)',re.M)
for f in files(root): defs|=set(rx.findall(open(f'{root}/{f}',encoding="utf8").read()))
for n in news:
    if n in defs: print('exists as type',n,have[n], news[n])
    elif have[n]: print('exists',n,have[n])
# rules
SC={'E':'crates/engine/**','S':'crates/sim/**','F':'crates/farshore/**','H':'crates/host/**','T':'crates/toolkit/**','X':'xtask/**','D':'crates/demo/**','P':'crates/plan/**','G':'crates/settings/**','W':'crates/witness/**','Z':'fuzz/**','*':'*','O':'crates/forgetful/**','FT':'crates/farshore/tests/**','U':'crates/units/**'}
def scope(s):
    o=[]
    for p in s.split(','):
        neg='!' if p.startswith('!') else ''
        p=p.lstrip('!')
        if p in SC: o.append(neg+SC[p])
        elif ':' in p:
            c,f=p.split(':'); b=SC[c][:-3]; o.append(neg+f'{b}/**/{f}')
        else: o.append(neg+p)
    return ','.join(o)
rules=[]
import os
for fn in sorted(glob.glob('/tmp/wd/in/*.rules')):
    sc='*'
    for l in open(fn):
        l=l.rstrip('\n')
        if not l.strip() or l.startswith('#'): continue
        m=re.match(r'^\[(.*)\]$',l)
        if m: sc=m.group(1); continue
        reason=''
        if ' ## ' in l: l,reason=l.split(' ## ')
        if ' ==> ' in l:
            o,n=[x.strip() for x in l.split(' ==> ')]; rules.append((o,n,scope(sc),reason.strip()))
        elif l.startswith('= '):
            for w in l[2:].split(): rules.append((w,w,scope(sc),reason.strip()))
        else:
            p=l.split()
            if len(p)!=2: print('bad',fn,l); continue
            rules.append((p[0],p[1],scope(sc),reason.strip()))
for o,n,s,r in rules: out.append('\t'.join([o,n,s]+([r] if r else [])))
for o,n,s,r in rules:
    if re.match(r'^\w+$',o) and not any(k==o and 0 for k in ()) and o not in have: print('unknown ident',o)
    if o!=n and re.match(r'^\w+$',n) and n in have:
        # in the same scope?
        from_scope=None
        print('into existing',o,'->',n,s,have[n]) if '-v' in sys.argv else None
open('/work/notes/words/idents.tsv','w').write('# old\tnew\tscope\treason (made of the lists of words; see apply.py for the form)\n'+'\n'.join(out)+'\n')
print(len(out),'rows')
