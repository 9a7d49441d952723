import re,sys,subprocess,collections
TOK=re.compile(r'''
 (?P<lc>//[^\n]*)
|(?P<bc>/\*.*?\*/)
|(?P<raw>\b(?:b|c)?r(?P<h>\#*)".*?"(?P=h))
|(?P<str>(?:\bb|\bc)?"(?:\\.|[^"\\])*")
|(?P<chr>\bb?'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\])')
|(?P<chr2>'(?:\\(?:x[0-9a-fA-F]{2}|u\{[^}]*\}|.)|[^'\\\n])')
|(?P<life>'[A-Za-z_]\w*)
|(?P<rawid>r\#[A-Za-z_]\w*)
|(?P<id>[A-Za-z_]\w*)
|(?P<num>\d\w*)
|(?P<ws>\s+)
|(?P<p>.)
''',re.X|re.S)
def toks(s):
    for m in TOK.finditer(s):
        yield m.lastgroup if m.lastgroup!='h' else 'raw', m.group(0), m.start()
def files(root,pat='*.rs'):
    return [f for f in subprocess.run(['git','-C',root,'ls-files',pat],capture_output=True,text=True).stdout.split('\n') if f]
def comps(i):
    out=[]
    for p in i.split('_'):
        out+= re.findall(r'[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+',p)
    return [x.lower() for x in out]
