out=['# old\tnew\tglob']; g='*'; seen=set()
for l in open('/tmp/wd/in/texts.in'):
    l=l.rstrip('\n')
    if not l.strip() or l.startswith('# '): continue
    if l.startswith('[') and l.endswith(']') and ' ==> ' not in l: g=l[1:-1]; continue
    if ' ==> ' not in l: print('bad',l); continue
    a,b=l.split(' ==> ',1)
    if (a,g) in seen: continue
    seen.add((a,g)); out.append(f'{a}\t{b}\t{g}')
open('/work/notes/words/texts.tsv','w').write('\n'.join(out)+'\n'); print(len(out))
