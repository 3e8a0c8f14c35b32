"""Words that mean the same in a developer's request, in several languages."""

from __future__ import annotations

from collections.abc import Mapping

# A line, with the indented ones below it, is one concept, named after its first word.
_LINES = """
create make add generate new produce write author draft build scaffold 作成 作る 生成 新規
    追加 书写 创建 新建 만들 생성
delete remove erase drop discard clean cleanup prune 削除 消す 除去 删除 삭제
change edit modify update alter diff difference 変更 修正 更新 差分 修改 更改 변경 수정
fix repair correct resolve solve debug bug error defect 直す 修正 バグ 不具合 エラー 修复
    버그 오류
find search look locate discover lookup 探す 検索 見つける 查找 搜索 찾 검색
list show display enumerate overview 一覧 表示 列出 显示 목록 표시
commit checkin save record コミット 提交 커밋
branch fork ブランチ 分支 브랜치
merge combine integrate join マージ 統合 合并 병합
group cluster bundle sort organize グループ まとめ 分類 分组 그룹
decide choose select pick determine judge 決める 判断 選択 選ぶ 决定 选择 결정 선택
test verify check validate spec テスト 検証 確認 测试 验证 테스트 검증
run execute launch perform start 実行 起動 运行 执行 실행
document docs documentation readme manual guide ドキュメント 文書 資料 文档 문서
explain describe clarify 説明 解释 说明 설명
summarize summary digest abstract recap 要約 まとめる 总结 摘要 요약
review inspect audit examine レビュー 査読 审查 评审 리뷰 검토
analyze investigate study research 分析 調査 解析 调查 분석 조사
plan design outline 計画 設計 计划 设计 계획 설계
task issue ticket todo story 課題 タスク チケット 任务 问题 작업 이슈
release publish ship deploy リリース 公開 発布 发布 배포 출시
translate localize 翻訳 翻译 번역
refactor restructure simplify rewrite リファクタ 重构 리팩
pr pull-request pullrequest プルリク プルリクエスト 拉取请求
instruction prompt directive command 指示 命令 プロンプト 指令 提示 지시 명령
frontmatter header metadata ヘッダ メタデータ 头部 元数据
name rename title label 名前 命名 名称 이름
convert transform migrate port 変換 移行 转换 迁移 변환
input stdin 入力 输入 입력
file document 文件 ファイル 파일
requirement need specification spec 要件 仕様 需求 规格 요구
oldest stale outdated earliest 最古 古い 最旧 오래
parent base upstream 親 親ブランチ 父 부모
"""


def concepts() -> Mapping[str, tuple[str, ...]]:
    """Each word with the concepts that it belongs to."""
    found: dict[str, tuple[str, ...]] = {}
    for line in _LINES.replace("\n    ", " ").strip().split("\n"):
        words = line.split()
        for word in words:
            found[word] = (*found.get(word, ()), f"={words[0]}")
    return found
